"""What is asked of a comparison of versions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from persona_pipeline.errors import ConfigError
from persona_pipeline.options import WINDOW

SCENES, CHANGE = 40, 1.0
YARDSTICKS = ("after", "before", "own")


@dataclass(frozen=True)
class ComparisonRequest:
    """Whom to compare, on what, and when it is decided.

    Attributes:
        agents: None for all that both versions have.
        dimensions: None for all that have claims.
        window: the length of a scene where the same messages are judged; of answered ones, from how long the talk is drawn.
        as_of: where the newest window ends; None: at the newest message that is not in the future.
        scenes: how many at most, an agent.
        change: points (0-9) that matter: when so large a change is ruled out, up and down, versions are called the same.
        samples: judgments per claim.
        yardstick: whose persona and claims answers are judged by: ``after``, ``before``, or each by its ``own``.
        seed: of the order of scenes.
        look: stop as soon as all is decided; None: where something is paid for.
    """

    agents: Sequence[str] | None = None
    dimensions: Sequence[str] | None = None
    window: str = WINDOW
    as_of: datetime | None = None
    scenes: int = SCENES
    change: float = CHANGE
    samples: int = 1
    yardstick: str = "after"
    seed: int = 0
    look: bool | None = None

    def __post_init__(self) -> None:
        if not 0 < self.change <= 9:
            raise ConfigError(f"--change {self.change:g} is not usable; give points above 0, up to 9")
        if self.yardstick not in YARDSTICKS:
            raise ConfigError(f"--yardstick {self.yardstick!r} is unknown; use {', '.join(YARDSTICKS)}")
