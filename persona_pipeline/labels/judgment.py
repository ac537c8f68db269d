"""A judgment that a person can make too, with what judges said."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from persona_pipeline.judging.verdict import JudgeRequest, Verdict
from persona_pipeline.world.models import Window

JudgeVersion = tuple[str | None, str | None]


@dataclass(frozen=True)
class Judgment:
    """One judged claim: what was shown and asked, and what judges said.

    Attributes:
        request: with claim, transcript and the persona that was shown (None: none was); of the first sample.
        window: the newest window it is part of.
        verdicts: every answer to it and its repeats, of any judge; never empty.
    """

    request: JudgeRequest
    window: Window
    verdicts: Sequence[Verdict]

    @property
    def key(self) -> str:
        """By which labels and verdicts find each other."""
        return self.request.key

    @property
    def dimension(self) -> str:
        return self.request.dimension

    @property
    def judged(self) -> tuple[str, str, str, str, Sequence[Verdict]]:
        """Key, agent, dimension and claim's id, with every verdict on it."""
        asked = self.request
        return self.key, asked.agent_id, asked.dimension, asked.proposition_id, self.verdicts

    @property
    def by_judge(self) -> Mapping[JudgeVersion, Sequence[Verdict]]:
        """The verdicts by (model, prompt version), in the order they were given."""
        found: dict[JudgeVersion, list[Verdict]] = {}
        for verdict in self.verdicts:
            found.setdefault((verdict.model, verdict.prompt_version), []).append(verdict)
        return found

    @property
    def score(self) -> float | None:
        """Mean raw score, 0-9, as the claim is written; None: no judge gave one."""
        scores = [verdict.score for verdict in self.verdicts if verdict.score is not None]
        return fmean(scores) if scores else None
