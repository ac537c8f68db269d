"""Both versions answer the same scenes, by targets as suites have them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.judging.money import Budget
from persona_pipeline.lab.answering import Answering, AskedScene, answer_plan
from persona_pipeline.lab.scenes import Scene
from persona_pipeline.lab.versions import Version, VersionAgent
from persona_pipeline.suites.answering.base import OutputCache, TargetError, TargetFields
from persona_pipeline.suites.running.opening import load_targets
from persona_pipeline.suites.running.plan import Targets
from persona_pipeline.suites.targets import Request
from persona_pipeline.testing import WorldBuilder
from persona_pipeline.world.models import Message, Window
from tests.support.messages_server import MessagesServer, message

NOW = datetime(2026, 3, 2, tzinfo=UTC)
TALK = (
    Message("a", "bob", "Coffee?", NOW, "general"),
    Message("b", "ann", "No.", NOW, "general"),
    Message("c", "bob", "Tea?", NOW, "general"),
)


@pytest.fixture
def agent(tmp_path: Path) -> VersionAgent:
    builder = WorldBuilder(tmp_path / "world").persona("ann", "Ann is {name} and dry.").persona("bob", "Bob.")
    return Version("x", builder.root).agent("ann", [])


def scene(name: str = "s", **fields: Any) -> Scene:
    return Scene(name, Window(NOW), TALK, **fields)


def targets_of(function: Any) -> Any:
    targets = Targets.of({"before": function, "after": function})
    return targets.open("before"), targets.open("after")


def texts_of(answering: Answering, asked: list[AskedScene]) -> list[tuple[str, ...]]:
    return [own.texts for own in answering.answers(asked)]


def test_the_persona_goes_first_and_others_speak_under_their_names(agent: VersionAgent) -> None:
    seen: list[Request] = []

    def answer(request: Request) -> str:
        seen.append(request)
        return "Black."

    before, after = targets_of(answer)
    answering = Answering((before, after))
    assert texts_of(answering, [AskedScene(before, agent, scene())]) == [("Black.",)]
    system, *talk = seen[0].messages
    assert system["role"] == "system"
    assert "Ann is {name} and dry." in system["content"]
    assert talk == [
        {"role": "user", "content": "Bob: Coffee?"},
        {"role": "assistant", "content": "No."},
        {"role": "user", "content": "Bob: Tea?"},
    ]


def test_a_bot_with_a_persona_of_its_own_is_sent_none(agent: VersionAgent) -> None:
    target = targets_of(lambda prompt: prompt)[0]
    assert AskedScene(target, agent, scene(), with_persona=False).messages()[0]["role"] == "user"


def test_equal_questions_are_asked_once_and_failures_are_counted(agent: VersionAgent) -> None:
    count = {"asked": 0}

    def answer(request: Request) -> str:
        count["asked"] += 1
        if request.test.id == "bad":
            raise TargetError("refusal", "no")
        return " " if request.test.id == "empty" else "Fine."

    before, _ = targets_of(answer)
    answering = Answering((before, before))
    asked = [AskedScene(before, agent, scene(name)) for name in ("s", "s", "bad", "empty")]
    found = answering.answers(asked)
    assert [(own.texts, own.missing) for own in found] == [(("Fine.",), "")] * 2 + [((), "refusal"), ((), "empty")]
    assert (count["asked"], answering.asked, dict(answering.failures)) == (3, 3, {"refusal": 1, "empty": 1})


def test_programs_need_leave_and_a_persona_target_is_refused(tmp_path: Path, agent: VersionAgent) -> None:
    path = tmp_path / "targets.yaml"
    path.write_text(
        "targets:\n- {name: own, provider: python, function: 'os:getcwd'}\n"
        "- {name: played, provider: persona, agent: ann, model: claude-haiku-5-5, root: world}\n",
        encoding="utf-8",
    )
    targets = load_targets(path)
    with pytest.raises(ConfigError, match="--allow-code"):
        Answering((targets.open("own"), targets.open("own")))
    with pytest.raises(ConfigError, match="plays a persona of its own"):
        Answering((targets.open("played"), targets.open("played")))


LINES = ("Coffee?", "Tea?", "Water, then?")


def test_a_script_is_asked_turn_by_turn_whatever_is_answered(tmp_path: Path, agent: VersionAgent) -> None:
    """What was answered goes along; a bot that remembers is told which talk it is; one that fails ends its own talk alone."""
    seen: list[Request] = []

    def answer(request: Request) -> dict[str, Any]:
        seen.append(request)
        if request.test.id == "bad" and request.turn == 1:
            raise TargetError("refusal", "no")
        return {"text": f"No {len(request.messages)}.", "cost_usd": 0.25, "duration_ms": 100.0}

    target, _ = targets_of(answer)
    answering = Answering((target, target), kept=OutputCache(tmp_path / "kept"))
    asked = [AskedScene(target, agent, Scene(name, Window(NOW), turns=LINES)) for name in ("long", "bad")]
    long, bad = answering.answers(asked)
    assert (long.texts, long.missing) == (("No 2.", "No 4.", "No 6."), "")
    assert [output.cost_usd for output in long.outputs] == [0.25] * 3
    assert (bad.texts, bad.missing) == (("No 2.",), "refusal")
    assert (answering.asked, answering.usd, dict(answering.failures)) == (5, 1.0, {"refusal": 1})
    own = sorted((item for item in seen if item.test.id == "long"), key=lambda item: item.turn)
    assert [item.turn for item in own] == [0, 1, 2]
    assert [item["content"] for item in own[-1].messages[1:]] == ["Coffee?", "No 2.", "Tea?", "No 4.", "Water, then?"]
    assert len({item.conversation for item in own}) == 1
    assert len({item.conversation for item in seen}) == 2
    # A run that was stopped goes on where it was, under the same name.
    seen.clear()
    again = Answering((target, target), kept=answering.kept, run=answering.run)
    assert again.answers(asked)[0] == long
    assert [(item.test.id, item.turn) for item in seen] == [("bad", 1)]
    assert seen[0].conversation not in {item.conversation for item in own}


@pytest.fixture
def model(tmp_path: Path) -> Iterator[tuple[TargetFields, MessagesServer]]:
    """A target that asks a model with a known price, and the server that answers."""
    with MessagesServer(handler=lambda call: message("Black. " * 40)) as server:
        path = tmp_path / "targets.yaml"
        path.write_text(
            f"targets:\n- {{name: model, provider: anthropic, model: claude-haiku-5-5, base_url: '{server.url}', "
            "api_key: k, max_tokens: 100}\n",
            encoding="utf-8",
        )
        target = load_targets(path).open("model")
        yield target, server
        target.close()


def test_answers_of_models_are_kept_and_paid_from_one_budget_turn_by_turn(
    model: tuple[TargetFields, MessagesServer], agent: VersionAgent, tmp_path: Path
) -> None:
    """Each turn is reserved when it is asked, for all that was said by then."""
    (target, server), cache = model, OutputCache(tmp_path / "cache")
    asked = [AskedScene(target, agent, Scene("s", Window(NOW), turns=LINES))]
    first = Answering((target, target), cache, budget=Budget(1.0))
    said = texts_of(first, asked)
    assert len(said[0]) == 3 and first.usd and first.budget and first.budget.spent == pytest.approx(first.usd)
    again = Answering((target, target), cache, budget=Budget(1.0))
    assert texts_of(again, asked) == said
    assert (again.asked, again.usd, len(server.calls)) == (0, 0.0, 3)
    for budget, turns in (
        (Budget(0.00001), 0),
        (Budget(Budget(1.0).worst_price("x" * 700, 100, "claude-haiku-5-5")), 1),
    ):
        poor = Answering((target, target), budget=budget)
        (cut,) = poor.answers(asked)
        assert cut.missing == "budget" and poor.out_of_money
        assert turns <= len(cut.texts) < 3 and poor.asked == len(cut.texts)


def test_a_talk_is_judged_as_one_conversation(agent: VersionAgent, tmp_path: Path) -> None:
    builder = WorldBuilder(tmp_path / "world").claim("adherence", "dry", "{{agent_name}} is dry")
    world = builder.claim("convergence", "own", "{{agent_name}} keeps its own words").open()
    judged = Version("x", world.root).agent("ann", ["adherence", "convergence"])
    script = Scene("s", Window(NOW), TALK, turns=LINES[:2])
    plan = answer_plan(world, judged, script, ("No.", "Never."), 1)
    said = {item.dimension: [entry.text for entry in item.trajectory.entries] for item in plan.requests}
    assert said["adherence"] == ["No.", "Never."]
    assert sorted(said["convergence"]) == sorted(("Coffee?", "No.", "Tea?", "Coffee?", "No.", "Tea?", "Never."))
