"""Damage is monotone through whole runs: worse messages, scores, claims and dimensions never make a verdict better."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import replace as changed
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import persona_pipeline as pp
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.settings import get_settings
from persona_pipeline.base.status import Result
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.judging.verdict import Question, Unscored
from persona_pipeline.scoring.messages.reading import KIND
from persona_pipeline.testing import ScriptedJudge, WorldBuilder
from persona_pipeline.world import Message
from persona_pipeline.world.messages.store import read_messages, write_messages

AGENTS, DIMENSIONS, CLAIMS = ("ann", "bob", "cat"), ("adherence", "fluency"), ("dry", "short", "kind")
PLACES = [(agent, dimension, claim) for agent in AGENTS for dimension in DIMENSIONS for claim in CLAIMS]
LEVEL, EACH, SPOILT = 8, 4, "Happy to help!"
ORDER: dict[Result | None, int] = {Result.FELL: 0, Result.CANNOT_TELL: 1, Result.HELD: 2}
CODES = {1: 0, 3: 1, 4: 1, 0: 2}
Place = tuple[str, str, str]


@dataclass(frozen=True)
class State:
    """What a judge says of a week.

    ``scores``: 0-9 by agent, dimension and claim. ``refused``: places that have no answer. ``spoilt``: ids of the messages that
    broke character. ``unread``: messages that have no verdict, by agent and place in the week, from 0.
    """

    scores: dict[Place, int]
    refused: frozenset[Place] = frozenset()
    spoilt: frozenset[str] = frozenset()
    unread: frozenset[tuple[str, int]] = frozenset()

    def verdict(self, request: pp.JudgeRequest) -> pp.Verdict:
        place = (request.agent_id, request.dimension, request.proposition_id)
        if place in self.refused:
            return pp.Verdict(request.proposition_id, unscored=pp.Unscored.REFUSAL)
        texts = [entry.text for entry in request.trajectory.entries if entry.speaker.lower() == request.agent_id]
        kept = 1 - texts.count(SPOILT) / max(len(texts), 1)
        return pp.Verdict(request.proposition_id, score=int(self.scores[place] * kept))

    def read(self, question: Question) -> Mapping[str, Any] | Unscored:
        """Say which messages are in character, as far as they are read."""
        if question.kind != KIND:
            return Unscored.UNRECORDED
        own = [entry for talk in json.loads(question.evidence) for entry in talk["entries"] if "id" in entry]
        told = [
            {"id": entry["id"], "verdict": "out" if entry["text"] == SPOILT else "in"}
            for place, entry in enumerate(own)
            if (question.agent_id, place) not in self.unread
        ]
        why = [{"id": item["id"], "claims": [], "quote": SPOILT, "reason": "stock"} for item in told]
        return {"verdicts": told, "why": why}


@dataclass(frozen=True)
class Office:
    """A world of three agents with a baseline, whose second week is replaced for each example."""

    world: pp.World
    messages: list[Message]

    def run(self, state: State) -> dict[object, int]:
        """Return how good the verdicts are, of the run, each agent and each dimension: 0 regressed, 1 cannot tell, 2 held."""
        said = [changed(item, text=SPOILT) if item.id in state.spoilt else item for item in self.messages]
        write_messages(self.world.store, said)
        judge = ScriptedJudge(state.verdict, reply=state.read)
        found = run_evaluation(self.world, judge, EvaluationRequest(dimensions=DIMENSIONS)).report
        verdicts: dict[object, int] = {"run": ORDER[found.conclusion.verdict], "exit code": CODES[found.exit_code]}
        for agent_id, report in found.agents.items():
            verdicts[agent_id] = ORDER[report.conclusion.verdict]
            verdicts |= {(agent_id, name): ORDER[own.verdict] for name, own in report.conclusions.items()}
        return verdicts


@pytest.fixture(autouse=True, scope="module")
def _asked() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERSONA_MESSAGE_VERDICTS", "400")
        yield


@pytest.fixture(scope="module", params=[1, 3], ids=lambda windows: f"baseline of {windows}")
def office(request: pytest.FixtureRequest, _asked: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    windows: int = request.param
    builder = WorldBuilder(tmp_path_factory.mktemp("office"))
    for agent in AGENTS:
        builder.persona(agent, f"{agent.title()} is dry.")
        for week in range(windows + 1):
            for number in range(EACH):
                builder.say(
                    agent, f"{agent} says {week}.{number}.", at=f"2026-03-{2 + 7 * week:02}T{9 + number:02}:00:00Z"
                )
    for dimension in DIMENSIONS:
        for claim in CLAIMS:
            builder.claim(dimension, claim, f"{{{{agent_name}}}} is {claim}")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PERSONA_MESSAGE_VERDICTS", "400")
        get_settings.cache_clear()
        world = builder.open()
    before = State(dict.fromkeys(PLACES, LEVEL))
    last = f"2026-03-{2 + 7 * windows:02}T00:00:00Z"
    judge = ScriptedJudge(before.verdict, reply=before.read)
    taken = EvaluationRequest(
        dimensions=DIMENSIONS, update_baseline=True, baseline_windows=windows, as_of=datetime.fromisoformat(last)
    )
    assert len(run_evaluation(world, judge, taken).baselines) == len(AGENTS)
    messages = [item for item in read_messages(world.store) if item.created_at.isoformat() >= last[:10]]
    assert len(messages) == len(AGENTS) * EACH
    yield Office(world, messages)
    world.store.close()


@st.composite
def damages(draw: st.DrawFn) -> tuple[State, State, bool]:
    """Return a state, the same with damage, and whether the damage took evidence away."""
    low = st.dictionaries(st.sampled_from(PLACES), st.integers(0, 9), max_size=6)
    ids = st.frozensets(st.integers(0, len(AGENTS) * EACH - 1), max_size=4)
    lost = st.frozensets(st.sampled_from(PLACES), max_size=3)
    silent = st.frozensets(st.tuples(st.sampled_from(AGENTS), st.integers(0, EACH - 1)), max_size=5)
    before = State(
        {**dict.fromkeys(PLACES, LEVEL), **draw(low)}, draw(lost), frozenset(map(str, draw(ids))), draw(silent)
    )
    scores = {place: min(score, before.scores[place]) for place, score in draw(low).items()}
    refused = draw(lost)
    if draw(st.booleans()):
        agent, dimension = draw(st.sampled_from(AGENTS)), draw(st.sampled_from(DIMENSIONS))
        refused |= {place for place in PLACES if place[:2] == (agent, dimension)}
    spoilt, unread = before.spoilt | set(map(str, draw(ids))), before.unread | draw(silent)
    after = State({**before.scores, **scores}, before.refused | refused, spoilt, unread)
    return before, after, (after.refused, after.unread) != (before.refused, before.unread)


# An example costs two runs: half as many as elsewhere, every night too.
@settings(
    max_examples=settings().max_examples // 2,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(damages())
def test_damage_never_makes_a_run_greener(office: Office, drawn: tuple[State, State, bool]) -> None:
    first, second, lost = drawn
    ids = [item.id for item in office.messages]
    first, second = (changed(state, spoilt=frozenset(ids[int(at)] for at in state.spoilt)) for state in (first, second))
    before, after = office.run(first), office.run(second)
    for what, known in before.items():
        # What is not judged any more can be a regression no longer; it is never green.
        most = max(known, 1) if lost and known < 2 else known
        assert after[what] <= most, (what, known, after[what])


def test_the_worlds_are_green_before_and_red_after(office: Office) -> None:
    healthy = State(dict.fromkeys(PLACES, LEVEL))
    assert {*office.run(healthy).values()} == {2}
    assert office.run(changed(healthy, unread=frozenset(("ann", place) for place in range(EACH))))["ann"] == 1
    broken = changed(healthy, spoilt=frozenset(item.id for item in office.messages if item.agent_id == "ann"))
    after = office.run(broken)
    assert after["run"] == after["exit code"] == after["ann"] == 0 and after["bob"] == 2
