"""Anchors: messages with a known verdict that check the judge in every live run, and the rules of the check.

The anchors stay the same. Their order changes each day, so that cached answers of earlier days are not reused.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property, lru_cache
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from persona_pipeline.base.documents.json import content_hash, json_line, read_rows, write_if_changed
from persona_pipeline.base.errors import ConfigError, Problem, not_valid
from persona_pipeline.judging.verdict import Unscored
from persona_pipeline.scoring.messages.reading import Character, MessageCall, Talk
from persona_pipeline.scoring.messages.verdicts import MessageVerdicts, Role
from persona_pipeline.world.models import Message, seed_from
from persona_pipeline.world.propositions.models import Proposition

# In the folder of the golden files.
FILE = "anchors.jsonl"
# Asked in a run, and by `doctor --judge`.
SIZE, DOCTOR_SIZE = 20, 40
# With fewer answers the judge is not checked.
FEWEST = 10
# A judge that throws dice passes with this probability at most: 16 of 20, 29 of 40.
MOST_BY_CHANCE = 0.006
# Changed in one run: a judge that differs from itself in 10 % of answers shows as many changes once in a thousand runs.
_NOISE, _LEVEL = 0.1, 0.001
# Changed over runs: this part of the anchors, at least two, differs from the baseline in three of the last four runs.
_PART, _LEAST, _OF_RUNS, _RUNS = 0.1, 2, 3, 4
# Answers that were given, although no verdict came of them. Other failures say nothing of the judge.
_WRONG = (Unscored.UNSUPPORTED.value, Unscored.COMPROMISED.value)


class Anchor(BaseModel, extra="ignore", frozen=True):
    """A message and its known verdict under an agent's name. ``by_people``: people gave the verdict."""

    text: str
    verdict: Role
    by_people: bool = False


class AnchorClaim(BaseModel, extra="ignore", frozen=True):
    """A claim as the judge is shown it. ``inverted``: true is bad."""

    id: str
    claim: str
    inverted: bool = False


class AnchoredAgent(BaseModel, extra="ignore", frozen=True):
    """An agent as it was when its anchors were drawn, and the anchors under its name.

    Attributes:
        persona: None: the judge is not shown it.
    """

    agent_id: str
    name: str
    persona: str | None
    claims: Sequence[AnchorClaim] = ()
    anchors: Sequence[Anchor] = ()

    @classmethod
    def of(cls, character: Character, anchors: Sequence[Anchor]) -> "AnchoredAgent":
        """Return an agent with its anchors."""
        claims = [AnchorClaim.model_validate(vars(item)) for item in character.claims]
        return cls(
            agent_id=character.agent_id,
            name=character.name,
            persona=character.persona,
            claims=claims,
            anchors=list(anchors),
        )

    @cached_property
    def by_key(self) -> dict[str, Anchor]:
        """The anchors by the key that answers are kept under."""
        return {content_hash([self.agent_id, item.text])[:12]: item for item in self.anchors}

    def only_out(self) -> "AnchoredAgent":
        """Return the agent with the anchors that are out of character under its name, and those that people labelled."""
        sure = [item for item in self.anchors if item.verdict is Role.OUT or item.by_people]
        return self.model_copy(update={"anchors": sure})

    def call(self, order: object) -> MessageCall:
        """Return the question about the anchors, each as a separate conversation. ``order``: seed of their order."""
        claims = [Proposition(item.id, item.claim, inverted=item.inverted) for item in self.claims]
        moment = datetime.fromtimestamp(0, UTC)
        talks = [
            Talk(key, [Message(key, self.agent_id, item.text, moment)], frozenset((key,)))
            for key, item in self.by_key.items()
        ]
        random.Random(seed_from("anchors", str(order))).shuffle(talks)
        return MessageCall(Character(self.agent_id, self.name, self.persona, claims), talks)


def load_anchors(path: Path) -> list[AnchoredAgent]:
    """Return the anchors in a file; a missing file has none. ``ConfigError``: a line is not valid."""

    def parse(line: str) -> AnchoredAgent:
        try:
            return AnchoredAgent.model_validate_json(line)
        except ValidationError as error:
            raise ValueError("; ".join(item.message for item in not_valid(error, "{name}: {why}").problems)) from None

    problems = list[Problem]()
    rows = read_rows(path, parse, problems, remedy="restore it, or delete the file") if path.exists() else []
    if problems:
        raise ConfigError(problems)
    return [agent for _, agent in rows]


def save_anchors(path: Path, agents: Sequence[AnchoredAgent]) -> None:
    """Write anchors to a file, an agent a line; ``OSError``: it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_if_changed(path, "".join(json_line(item.model_dump(mode="json")) for item in agents))


class AnchorAnswers(BaseModel, extra="ignore", frozen=True):
    """A judge's answers on the anchors on one day.

    Attributes:
        right: whether the verdict is the known one, by key of the anchor. ``by_people``: number that people labelled.
        unanswered: number of anchors without an answer. ``unsteady``: keys with two different answers on the same day.
        one_sided: all answered anchors have the same known verdict: a judge that always gives it is right.
    """

    day: date
    right: dict[str, bool] = Field(default_factory=dict)
    by_people: int = 0
    unanswered: int = 0
    unsteady: list[str] = Field(default_factory=list)
    one_sided: bool = Field(default=False, exclude_if=lambda found: not found)

    def again(self, second: "AnchorAnswers") -> "AnchorAnswers":
        """Return the answers with the anchors that a second round answers otherwise."""
        unsteady = [key for key, right in self.right.items() if second.right.get(key, right) != right]
        return self.model_copy(update={"unsteady": unsteady})


def answers_of(agents: Sequence[AnchoredAgent], read: Sequence[MessageVerdicts], day: date) -> AnchorAnswers:
    """Return a judge's answers in the order of the agents. Unclear counts as a wrong answer."""
    right, by_people, unanswered, sides = dict[str, bool](), 0, 0, set[Role]()
    for agent, item in zip(agents, read, strict=True):
        given = {verdict.message: verdict.verdict for verdict in item.verdicts}
        gave_none = not set(item.unscored) <= set(_WRONG)
        for key, anchor in agent.by_key.items():
            if key not in given and gave_none:
                unanswered += 1
                continue
            right[key] = given.get(key) is anchor.verdict
            by_people += anchor.by_people
            sides.add(anchor.verdict)
    return AnchorAnswers(day=day, right=right, by_people=by_people, unanswered=unanswered, one_sided=len(sides) == 1)


@dataclass(frozen=True)
class AnchorRound:
    """The calls of a check. ``day``: of the newest window; ``rounds``: 2 where a baseline is taken."""

    agents: Sequence[AnchoredAgent]
    day: date
    rounds: int = 1

    @cached_property
    def calls(self) -> list[MessageCall]:
        """The questions, a call an agent and round."""
        return [agent.call((self.day, number)) for number in range(self.rounds) for agent in self.agents]

    def answers(self, read: Sequence[MessageVerdicts]) -> AnchorAnswers | None:
        """Return the judge's answers from the verdicts on ``calls``; None: it gave none."""
        if not any(item.is_answered for item in read):
            return None
        each = len(self.agents)
        first, *others = (answers_of(self.agents, read[at : at + each], self.day) for at in range(0, len(read), each))
        return first.again(others[0]) if others else first


class JudgeCheck(BaseModel, extra="ignore", frozen=True):
    """Outcome of a check of the judge.

    Attributes:
        asked: number of answered anchors; ``right``: with the known verdict; ``by_people``: labelled by people.
        unanswered: number of anchors without an answer.
        before: right and answered when the baseline was taken; None: unknown.
        changed: the answers differ from the baseline's by more than chance.
        one_sided: see ``AnchorAnswers``. The judge can then fail its check, but not pass it.
    """

    asked: int = 0
    right: int = 0
    by_people: int = 0
    unanswered: int = 0
    before: tuple[int, int] | None = None
    changed: bool = False
    one_sided: bool = Field(default=False, exclude_if=lambda found: not found)

    @property
    def passed(self) -> bool | None:
        """Whether enough are right; None: too few or only of one side were answered, so the judge is not checked."""
        enough = self.right >= wanted(self.asked)
        return None if self.asked < FEWEST or (enough and self.one_sided) else enough

    @property
    def text(self) -> str:
        """The outcome in a line."""
        if self.passed is None:
            if self.one_sided and self.asked >= FEWEST:
                return "judge not checked: all known messages it was asked about have the same verdict"
            answered = f": {self.asked} of {self.asked + self.unanswered} answered" if self.unanswered else ""
            return f"judge not checked{answered}"
        rate = f"{self.right} of {self.asked} ({self.by_people or 'none'} labelled by people)"
        if not self.passed:
            return f"judge failed its check: {rate}, {wanted(self.asked)} wanted"
        changed = f"; it changed: {self.before[0]} of {self.before[1]} before" if self.changed and self.before else ""
        return f"judge checked: {rate}{changed}"


@lru_cache
def _least(number: int, rate: float, level: float) -> int:
    """Return the smallest count that ``number`` tries reach with a probability of at most ``level``; else ``number`` + 1."""
    chances = [math.comb(number, count) * rate**count * (1 - rate) ** (number - count) for count in range(number + 1)]
    return next(count for count in range(number + 2) if sum(chances[count:]) <= level)


def wanted(answered: int) -> int:
    """Return how many answers must be right."""
    return _least(answered, 0.5, MOST_BY_CHANCE)


def check_of(
    now: AnchorAnswers | None, baseline: AnchorAnswers | None = None, earlier: Sequence[AnchorAnswers] = ()
) -> JudgeCheck:
    """Return the outcome of a check.

    Args:
        now: current answers; None: the judge was not asked.
        baseline: answers when the baseline was taken.
        earlier: answers of the runs since, oldest first.
    """
    if now is None:
        return JudgeCheck()
    return JudgeCheck(
        asked=len(now.right),
        right=sum(now.right.values()),
        by_people=now.by_people,
        unanswered=now.unanswered,
        before=(sum(baseline.right.values()), len(baseline.right)) if baseline and baseline.right else None,
        changed=baseline is not None and has_changed(now, baseline, earlier),
        one_sided=now.one_sided,
    )


def has_changed(now: AnchorAnswers, baseline: AnchorAnswers, earlier: Sequence[AnchorAnswers] = ()) -> bool:
    """Return whether answers differ from those of a baseline by more than chance: in one run, or steadily over runs.

    Anchors that got two answers when the baseline was taken are left out. A run of the same day is the same run.
    """
    steady = [key for key in baseline.right if key not in baseline.unsteady]
    runs = [*{item.day: item for item in (*earlier, now)}.values()][-_RUNS:]
    compared = [key for key in steady if key in now.right]
    if len(compared) < FEWEST:
        return False
    differing = [key for key in compared if now.right[key] != baseline.right[key]]
    if len(differing) >= _least(len(compared), _NOISE, _LEVEL):
        return True
    moved = [
        key
        for key in compared
        if sum(run.right.get(key, baseline.right[key]) != baseline.right[key] for run in runs) >= _OF_RUNS
    ]
    return len(moved) >= max(_LEAST, math.ceil(_PART * len(compared)))
