"""Both versions answer the same scenes, by targets as suites have them."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.judging.money import Budget
from persona_pipeline.lab.compare.scenes import Answering, AskedScene, Scene
from persona_pipeline.lab.states import Side, SideAgent
from persona_pipeline.suites.answering.base import OutputCache, TargetError
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
def agent(tmp_path: Path) -> SideAgent:
    builder = WorldBuilder(tmp_path / "world").persona("ann", "Ann is {name} and dry.").persona("bob", "Bob.")
    return Side("x", builder.root).agent("ann", [])


def scene(name: str = "s", **fields: Any) -> Scene:
    return Scene(name, Window(NOW), TALK, **fields)


def targets_of(function: Any) -> Any:
    targets = Targets.of({"before": function, "after": function})
    return targets.open("before"), targets.open("after")


def test_the_persona_goes_first_and_others_speak_under_their_names(agent: SideAgent) -> None:
    seen: list[Request] = []

    def answer(request: Request) -> str:
        seen.append(request)
        return "Black."

    before, after = targets_of(answer)
    answering = Answering((before, after))
    assert answering.answers([AskedScene(before, agent, scene(system="Be brief."))]) == ["Black."]
    system, *talk = seen[0].messages
    assert system["role"] == "system"
    assert "Ann is {name} and dry." in system["content"] and system["content"].endswith("Be brief.")
    assert talk == [
        {"role": "user", "content": "Bob: Coffee?"},
        {"role": "assistant", "content": "No."},
        {"role": "user", "content": "Bob: Tea?"},
    ]


def test_a_bot_with_a_persona_of_its_own_is_sent_none(agent: SideAgent) -> None:
    target = targets_of(lambda prompt: prompt)[0]
    assert AskedScene(target, agent, scene(), with_persona=False).messages[0]["role"] == "user"


def test_equal_questions_are_asked_once_and_failures_are_counted(agent: SideAgent) -> None:
    count = {"asked": 0}

    def answer(request: Request) -> str:
        count["asked"] += 1
        if request.test.id == "bad":
            raise TargetError("refusal", "no")
        return " " if request.test.id == "empty" else "Fine."

    before, _ = targets_of(answer)
    answering = Answering((before, before))
    asked = [AskedScene(before, agent, scene(name)) for name in ("s", "s", "bad", "empty")]
    assert answering.answers(asked) == ["Fine.", "Fine.", None, None]
    assert (count["asked"], answering.asked, dict(answering.failures)) == (3, 3, {"refusal": 1})


def test_programs_need_leave_and_a_persona_target_is_refused(tmp_path: Path, agent: SideAgent) -> None:
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


def test_answers_of_models_are_kept_and_paid_from_one_budget(
    tmp_path: Path, agent: SideAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessagesServer(handler=lambda call: message("Black.")) as server:
        monkeypatch.setenv("KEY", "k")
        path = tmp_path / "targets.yaml"
        path.write_text(
            f"targets:\n- {{name: model, provider: anthropic, model: claude-haiku-5-5, base_url: '{server.url}', "
            "api_key: '${{ KEY }}', max_tokens: 100}\n",
            encoding="utf-8",
        )
        target = load_targets(path).open("model")
        cache = OutputCache(tmp_path / "cache")
        first = Answering((target, target), cache, budget=Budget(1.0))
        said = first.answers([AskedScene(target, agent, scene())])
        assert said[0] and first.usd and first.budget and first.budget.spent == pytest.approx(first.usd)
        again = Answering((target, target), cache, budget=Budget(1.0))
        assert again.answers([AskedScene(target, agent, scene())]) == said
        assert (again.asked, again.usd) == (0, 0.0)
        poor = Answering((target, target), budget=Budget(0.00001))
        assert poor.answers([AskedScene(target, agent, scene())]) == [None]
        assert poor.out_of_money and poor.asked == 0
        assert len(server.calls) == 1
        target.close()
