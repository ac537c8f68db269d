"""Does a judge read what it judges? Agents' claims are judged on their own messages and on others' shown under their names.

What a judge that reads gives to an agent's own messages is higher; one that goes by the claim alone gives both the same.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean, variance
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from persona_pipeline.base.documents.json import json_line, write_atomically
from persona_pipeline.guard.calibration.judge_change import JudgeName, load_kept
from persona_pipeline.guard.calibration.measures import HIGHEST
from persona_pipeline.judging.recordings.replay import Recording

READINGS = Path("calibration") / "reading.json"
# By whose claims it is tested.
DIMENSION = "adherence"
# Transcripts of an agent's own, and as many of others.
FEWEST_TRANSCRIPTS, MOST_TRANSCRIPTS = 10, 20
# How many standard errors own messages must stand above others': a judge that never reads passes once in a hundred tests
# (`benchmarks/reading.py`; a normal quantile would say one in two hundred, and ten transcripts a side are few).
SURELY = 2.6


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class JudgedTranscript(_Kept):
    """One transcript shown under an agent's name, judged by the agent's claims.

    Attributes:
        own: the agent said it; else somebody else did.
        scores: 0-9 as the judge gave them, by the key of the judgment; ``inverted``: those of claims that are good when false.
    """

    agent_id: str
    own: bool
    scores: Mapping[str, int] = Field(default_factory=dict)
    inverted: Mapping[str, int] = Field(default_factory=dict)

    @property
    def score(self) -> float | None:
        """Mean over the claims, 0-9, higher is more like the agent; None where none is scored."""
        found = [*self.scores.values(), *(HIGHEST - score for score in self.inverted.values())]
        return fmean(found) if found else None


class Sides(NamedTuple):
    """What an agent's own transcripts got on average, and others' under its name, 0-9; ``error`` of the difference."""

    agent_id: str
    own: float
    others: float
    error: float


class ReadingTest(_Kept):
    """What a judge gave to agents' own messages and to others'.

    Attributes:
        transcripts: none: it could not be tested.
        ran_at: RFC 3339.
    """

    judge: JudgeName
    transcripts: Sequence[JudgedTranscript] = ()
    ran_at: str = ""

    @cached_property
    def agents(self) -> list[Sides]:
        """The agents with enough transcripts on both sides, in the order of the transcripts."""
        found = []
        for agent_id in dict.fromkeys(item.agent_id for item in self.transcripts):
            mine, others = (
                [
                    item.score
                    for item in self.transcripts
                    if (item.agent_id, item.own) == (agent_id, own) and item.score is not None
                ]
                for own in (True, False)
            )
            if min(len(mine), len(others)) >= FEWEST_TRANSCRIPTS:
                error = math.sqrt(variance(mine) / len(mine) + variance(others) / len(others))
                found.append(Sides(agent_id, fmean(mine), fmean(others), error))
        return found

    @cached_property
    def reads(self) -> bool | None:
        """Whether own messages stand surely above others', all agents together; None: nobody has transcripts enough."""
        found = self.agents
        if not found:
            return None
        above = sum(item.own - item.others for item in found)
        return above > SURELY * math.sqrt(sum(item.error**2 for item in found))

    @property
    def keys(self) -> set[str]:
        """The keys of all its judgments."""
        return {key for item in self.transcripts for key in (*item.scores, *item.inverted)}

    def as_recorded(self, recordings: Iterable[Recording]) -> "ReadingTest":
        """Return the same with what recordings of this judge say of the same judgments now."""
        judge = self.judge.model, self.judge.prompt_version
        own = (item for item in recordings if (item.model, item.prompt_version) == judge)
        now = {item.key: item.score for item in own if item.score is not None}

        def again(scores: Mapping[str, int]) -> dict[str, int]:
            return {key: now.get(key, score) for key, score in scores.items()}

        changed = [
            item.model_copy(update={"scores": again(item.scores), "inverted": again(item.inverted)})
            for item in self.transcripts
        ]
        return self.model_copy(update={"transcripts": changed})

    def __str__(self) -> str:
        told = "; ".join(
            f"{item.agent_id}: own messages {item.own:.1f}, others' under the same name {item.others:.1f}"
            for item in self.agents
        )
        model = self.judge.model
        if self.reads is None:
            return f"whether {model} reads what it judges cannot be told"
        return f"{model} {'reads' if self.reads else 'does not read'} what it judges ({told})"


class _Readings(_Kept):
    readings: list[ReadingTest]


def load_readings(path: Path) -> list[ReadingTest]:
    """Return what was found of every judge that was tested; a missing file holds nothing. ConfigError: it is not valid."""
    return load_kept(path, _Readings, "run persona-pipeline doctor --reading").readings if path.exists() else []


def save_reading(path: Path, reading: ReadingTest) -> Path:
    """Write what was found of a judge, replacing what was found of it before."""
    known = {item.judge: item for item in [*load_readings(path), reading]}
    path.parent.mkdir(parents=True, exist_ok=True)
    # A transcript a line, to be read in a diff.
    text = ",\n".join(_lines(item) for _, item in sorted(known.items(), key=lambda row: str(row[0])))
    write_atomically(path, f'{{"readings": [\n{text}\n]}}\n')
    return path


def _lines(reading: ReadingTest) -> str:
    head = json_line({"judge": reading.judge.model_dump(), "ran_at": reading.ran_at}).strip()[:-1]
    rows = ",\n".join(json_line(item.model_dump()).strip() for item in reading.transcripts)
    return f'{head}, "transcripts": [\n{rows}\n]}}'
