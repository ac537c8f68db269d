"""The scale in words, as the judge has it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Band:
    """Scores that mean about the same: ``first`` to ``last``, both included."""

    first: int
    last: int
    words: str


BANDS = (
    Band(0, 0, "false beyond doubt"),
    Band(1, 3, "mostly false"),
    Band(4, 5, "mixed"),
    Band(6, 8, "mostly true"),
    Band(9, 9, "true beyond doubt"),
)
