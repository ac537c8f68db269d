"""Propositions: claims about an agent, and the settings of the set they stand in (spec/1)."""

from dataclasses import dataclass
from typing import Any

from persona_pipeline.world.canonical import content_hash


@dataclass(frozen=True)
class WindowDefaults:
    """How many entries of a trajectory are shown when a file does not say."""

    first_n: int
    last_n: int


EVALUATION_WINDOW_DEFAULTS = WindowDefaults(first_n=10, last_n=100)
ACTION_LEVEL_WINDOW_DEFAULTS = WindowDefaults(first_n=5, last_n=10)


@dataclass(frozen=True)
class Proposition:
    """One claim. ``inverted``: true is bad, so the raw score is flipped."""

    id: str
    claim: str
    weight: float = 1.0
    inverted: bool = False
    recommendations_for_improvement: str | None = None


@dataclass(frozen=True)
class Catchphrase:
    """A phrase the agent should use at a rate (uses per message) within ``min_rate`` and ``max_rate``."""

    phrase: str
    min_rate: float
    max_rate: float


@dataclass(frozen=True)
class PropositionSet:
    """The merged propositions of one dimension for one agent (default file, then the agent's)."""

    dimension: str
    propositions: tuple[Proposition, ...]
    agent_id: str | None = None
    include_personas: bool = True
    hard: bool = False
    target_type: str = "agent"
    level: str = "evaluation"
    first_n: int | None = None
    last_n: int | None = None
    catchphrases: tuple[Catchphrase, ...] = ()

    def window(self, defaults: WindowDefaults = EVALUATION_WINDOW_DEFAULTS) -> tuple[int, int]:
        """Return ``(first_n, last_n)`` with the context's defaults where the files say nothing."""
        first_n = defaults.first_n if self.first_n is None else self.first_n
        last_n = defaults.last_n if self.last_n is None else self.last_n
        return first_n, last_n

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; absent optional values are left out."""
        data: dict[str, Any] = {"dimension": self.dimension}
        for name in ("agent_id", "include_personas", "hard", "target_type", "level", "first_n", "last_n"):
            if getattr(self, name) is not None:
                data[name] = getattr(self, name)
        if self.catchphrases:
            data["catchphrases"] = [vars(catchphrase) for catchphrase in self.catchphrases]
        data["propositions"] = [
            {key: value for key, value in vars(proposition).items() if value is not None}
            for proposition in self.propositions
        ]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "PropositionSet":
        """Return the set that ``to_dict`` wrote."""
        rest = {key: value for key, value in data.items() if key not in ("propositions", "catchphrases")}
        return cls(
            **rest,
            propositions=tuple(Proposition(**item) for item in data["propositions"]),
            catchphrases=tuple(Catchphrase(**item) for item in data.get("catchphrases", ())),
        )

    @property
    def hash(self) -> str:
        """SHA-256 of the set's content."""
        return content_hash(self.to_dict())
