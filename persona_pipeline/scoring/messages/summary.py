"""The verdicts on the messages of one agent in one window, and what is said of them in one sentence."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import BaseModel, Field

from persona_pipeline.judging.verdict import Unscored, Usage
from persona_pipeline.scoring.messages.share import Share, ShareChange, sentence, share_in_character, since_when
from persona_pipeline.scoring.messages.verdicts import MessageVerdict, in_order

# Below this share in character a window is not the character, and no baseline.
LOWEST_SHARE = 0.8


class MessageVerdicts(BaseModel, extra="forbid"):
    """The verdicts on the messages of one agent in one window, in order of time.

    Attributes:
        unscored: number of messages without a verdict, by reason. ``detail``: the first failure in one line.
        left_out: number of older messages that were not asked about.
        share: in character, with its interval. ``change``: the last change of the share up to the end of the window, also where it
            is in an earlier window; None: no change is shown.
        model: the judge's model. ``prompt_version``: of the question.
        usage: tokens and price of the calls of this run.
    """

    agent_id: str
    verdicts: list[MessageVerdict] = Field(default_factory=list)
    unscored: dict[str, int] = Field(default_factory=dict)
    detail: str = ""
    left_out: int = 0
    share: Share = Share(0, 0, 0, 0, None, 0.0, 1.0)
    change: ShareChange | None = None
    model: str | None = None
    prompt_version: str | None = None
    usage: Usage = Field(default_factory=Usage)

    @property
    def is_answered(self) -> bool:
        """Whether a judge was asked: recordings of earlier releases have no such answers, and are valid."""
        return bool(self.verdicts) or set(self.unscored) != {Unscored.UNRECORDED.value}

    @property
    def drift(self) -> ShareChange | None:
        """Since when the agent is out of character; None where it is not, or no date is shown."""
        return self.change if self.change and self.change.is_drift else None

    @property
    def is_low(self) -> bool:
        """Whether the share in character is below 80 %."""
        return self.share.share is not None and self.share.share < LOWEST_SHARE

    def text(self, name: str) -> str:
        """Return what is said of an agent of that name, in one sentence."""
        return sentence(name, self.share, self.change, not_judged=sum(self.unscored.values()))

    def dated(self, series: Sequence[MessageVerdict]) -> "MessageVerdicts":
        """Return the verdicts with their share, and with the last change in a longer series that ends with them."""
        return self.model_copy(update={"share": share_in_character(self.verdicts), "change": last_change(series)})


def last_change(series: Sequence[MessageVerdict]) -> ShareChange | None:
    """Return the last change of the share in character: after a drift and its correction that is the correction."""
    rest, found = in_order(series), None
    while change := since_when(rest):
        found = change
        rest = [item for item in rest if _place(item) >= (change.since, change.message)]
    return found


def _place(item: MessageVerdict) -> tuple[datetime, str]:
    return item.said_at, item.message
