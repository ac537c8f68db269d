"""What an interview found: plain values that are also its JSON, and what later interviews are held against."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from persona_pipeline.base.documents.json import JsonError, strict_json, write_atomically
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.files import read_regular
from persona_pipeline.base.status import Result
from persona_pipeline.guard.baselines.golden import BASELINES
from persona_pipeline.lab.results import Asked, MeanChange, Value
from persona_pipeline.world.personas import check_agent_id


class InterviewScore(Value):
    """A dimension's score, 0-9: the mean over scenes, each the mean of its sessions.

    Attributes:
        low, high: its 95 % interval; None below six scenes.
        kinds: the mean of each kind of scene that has one.
        scenes: how many have a score; ``unjudged``: conversations that failed; ``silent``: those with nothing to judge.
        claims: hash of the claims it was judged by.
    """

    score: float | None = None
    low: float | None = None
    high: float | None = None
    kinds: dict[str, float] = Field(default_factory=dict)
    scenes: int = 0
    unjudged: int = 0
    silent: int = 0
    claims: str = ""


class MeanVerdict(MeanChange):
    """The verdict on a dimension, on a kind of scene in it, or on a claim. ``why``: the reason if it is inconclusive."""

    dimension: str
    claim: str = ""
    kind: str = ""
    verdict: Result
    why: str = ""


class WorstLine(Value):
    """A line that breaks claims, ``dimension/id`` each. ``score``: the lowest, 0-9; ``asked``: the visitor's line before it."""

    claims: tuple[str, ...]
    score: float
    scene: str
    session: int
    asked: str
    quote: str
    reasoning: str = ""


class InterviewedScene(Value):
    """A scene as it was asked, and its scores: by dimension or ``dimension/claim`` one a session."""

    kind: str
    hash: str
    scores: dict[str, tuple[Annotated[float, Field(ge=0, le=9)] | None, ...]] = Field(default_factory=dict)


class Interview(Asked):
    """An interview of an agent, played by a target.

    Attributes:
        persona: hash of the persona; ``hidden``: the judge did not see its names.
        not_asked: dimensions that an interview does not have, and why.
        verdicts: since the baseline, whole dimensions first; empty without a baseline.
        baseline: its time; ``changed``: scenes left out, as they are not in both.
        whole: every scene was answered and judged.
    """

    version: str
    agent_id: str
    display_name: str
    taken_at: str
    target: str
    judge: str
    models: tuple[str, ...] = ()
    persona: str
    hidden: bool
    sessions: int = Field(ge=1, le=100)
    scenes: dict[str, InterviewedScene]
    dimensions: dict[str, InterviewScore]
    not_asked: dict[str, str] = Field(default_factory=dict)
    worst: tuple[WorstLine, ...] = ()
    baseline: str = ""
    changed: int = 0
    verdicts: tuple[MeanVerdict, ...] = ()
    whole: bool = True


def baseline_file(root: Path, agent_id: str) -> Path:
    """Return the path of an agent's baseline interview."""
    return root / BASELINES / "interviews" / f"{check_agent_id(agent_id)}.json"


def find_interview_baseline(root: Path, agent_id: str) -> Interview | None:
    """Return the interview that an agent's later ones are held against, None without one; ConfigError: the file is not valid."""
    path = baseline_file(root, agent_id)
    if not path.exists():
        return None
    try:
        found = Interview.model_validate(strict_json(read_regular(path).decode("utf-8")), strict=False)
    except (JsonError, ValueError, OSError) as error:
        why = f"is no interview ({type(error).__name__}); take it again with interview {agent_id} --baseline"
        raise ConfigError(Problem(why, str(path))) from error
    if found.agent_id != agent_id:
        raise ConfigError(Problem(f"is the interview of {found.agent_id!r}, not of {agent_id!r}", str(path)))
    return found


def save_interview_baseline(root: Path, found: Interview) -> Path:
    """Write an interview as the baseline, without its texts; ConfigError: it is not complete."""
    if not found.whole:
        raise ConfigError(
            "an interview that is not fully answered and judged cannot be a baseline; run it again to continue"
        )
    kept = found.model_copy(update={"worst": (), "verdicts": (), "baseline": "", "changed": 0, "exit_code": 0})
    path = baseline_file(root, found.agent_id)
    write_atomically(path, kept.model_dump_json(indent=2) + "\n")
    return path
