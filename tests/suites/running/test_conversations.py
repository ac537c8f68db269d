"""Conversations: what the user says turn by turn, by lines that are written or by a target that plays the user."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.judging.verdict import JudgeRequest, Question
from persona_pipeline.suites import RunOptions, Suite, SuiteResult, run_suite
from persona_pipeline.suites.answering.base import load_responses
from persona_pipeline.suites.running.conversations import END
from persona_pipeline.suites.running.opening import load_targets
from persona_pipeline.suites.targets import Request, TargetError
from tests.suites.support import Given, ScriptedBackend, ScriptedSuiteJudge, load, run, target, write

OK = {"type": "contains", "value": "ok"}


def conversation(folder: Path, **fields: Any) -> Suite:
    test = {"id": "chat", **fields}
    return load(folder, yaml.safe_dump({"tests": [test]}, sort_keys=False, allow_unicode=True))


def held(suite: Suite, *targets: Any, judge: Any = None, **options: Any) -> SuiteResult:
    return run_suite(
        suite, targets=Given.of(*targets), judge=judge, options=RunOptions(targets=("default",), **options)
    )


def judged(score: Any = lambda request: 9, reply: Any = lambda question: {}) -> ScriptedSuiteJudge:
    return ScriptedSuiteJudge(ScriptedBackend(reply), score)


def echo(request: Request) -> str:
    return f"{request.turn + 1}: {request.last_message}"


def spoken(request: Request) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in request.messages]


def test_each_turn_is_asked_with_all_that_was_said(tmp_path: Path) -> None:
    seen: list[Request] = []
    suite = conversation(
        tmp_path,
        input=[{"role": "system", "content": "Be kind."}],
        turns=["Hello", {"user": "And now?"}],
        **{"assert": [OK]},
    )
    result = held(suite, target(lambda request: seen.append(request) or "ok"))
    assert [spoken(request) for request in seen] == [
        [("system", "Be kind."), ("user", "Hello")],
        [("system", "Be kind."), ("user", "Hello"), ("assistant", "ok"), ("user", "And now?")],
    ]
    assert [(request.test.id, request.turn, request.last_message) for request in seen] == [
        ("chat", 0, "Hello"),
        ("chat", 1, "And now?"),
    ]
    # An agent that remembers for itself tells conversations apart by it.
    assert len({request.conversation for request in seen}) == 1
    assert result.tests[0].score == 1.0
    assert result.tests[0].to_dict()["answer"] == "ok\n\nok"


def test_attempts_are_conversations_of_their_own(tmp_path: Path) -> None:
    names: list[str] = []
    suite = conversation(
        tmp_path, turns=["a", "b"], execution={"trials": {"count": 2, "strategy": "mean"}}, **{"assert": [OK]}
    )
    held(suite, target(lambda request: names.append(request.conversation) or "ok"))
    assert [names.count(name) for name in dict.fromkeys(names)] == [2, 2]


def test_asserts_hold_for_their_turn_for_every_turn_and_for_the_whole(tmp_path: Path) -> None:
    suite = conversation(
        tmp_path,
        turns=[{"user": "one", "assert": [{"type": "contains", "value": "1"}]}, {"user": "two", "assert": [OK]}],
        each_turn=[
            {"type": "regex", "value": r"^\d", "name": "starts with its number"},
            {"type": "contains", "value": "two", "name": "says two"},
        ],
        **{"assert": [{"type": "contains", "value": "one"}]},
    )
    (test,) = held(suite, target(echo)).tests
    scores = {item.name: item.score for item in test.best.results}
    assert scores == {
        "contains-one": 1.0, "turn 1: contains-1": 1.0, "turn 2: contains-ok": 0.0,
        "each turn: starts with its number": 1.0, "each turn: says two": 0.0,
    }  # fmt: skip
    worst = next(item for item in test.best.results if item.name == "each turn: says two")
    assert [child.score for child in worst.children] == [0.0, 1.0]
    assert [text.partition(":")[0] for text in worst.misses] == ["turn 1"]
    assert test.score == pytest.approx(3 / 5)


def test_a_gate_of_one_turn_is_the_tests(tmp_path: Path) -> None:
    suite = conversation(
        tmp_path,
        turns=[{"user": "one", "assert": [{**OK, "required": True}]}],
        **{"assert": [{"type": "contains", "value": "one"}]},
    )
    (test,) = held(suite, target(echo)).tests
    assert (test.score, list(test.best.failed_gates)) == (0.0, ["turn 1: contains-ok"])


def test_the_judge_of_a_turn_sees_what_came_before_and_the_judge_of_the_whole_sees_all(tmp_path: Path) -> None:
    seen: list[Question] = []

    def reply(question: Question) -> dict[str, Any]:
        seen.append(question)
        return {"reasoning": "", "hits": [], "misses": [], "score": 1.0}

    suite = conversation(
        tmp_path,
        turns=["one", {"user": "two", "criteria": "counts on", "assert": [{"type": "llm_judge"}]}],
        criteria="counts",
        **{"assert": [{"type": "llm_judge"}]},
    )
    held(suite, target(echo), judge=lambda: judged(reply=reply))
    whole, turn = (json.loads(question.evidence) for question in seen)
    assert turn["answer"] == "2: two"
    assert turn["criteria"] == "counts on"
    assert "1: one" in turn["question"]
    assert "2: two" not in turn["question"]
    assert whole["answer"] == "1: one\n\n2: two"
    assert all(text in whole["question"] for text in ("@[User]:\none", "@[Assistant]:\n1: one", "2: two"))
    assert [question.label for question in seen] == ["llm_judge of suite/chat", "llm_judge of suite/chat turn 2"]


USER = {"target": "visitor", "goal": "Know when it opens.", "turns": 4}


class TestSimulatedUser:
    def visitor(self, *lines: str) -> tuple[Any, list[Request]]:
        seen: list[Request] = []

        def say(request: Request) -> dict[str, Any]:
            seen.append(request)
            return {"text": lines[len(seen) - 1], "cost_usd": 0.25}

        return target(say, name="visitor"), seen

    def test_it_sees_the_conversation_from_its_side_and_ends_it(self, tmp_path: Path) -> None:
        user, seen = self.visitor("When do you open?", f"Thanks! {END}")
        suite = conversation(tmp_path, user=USER, **{"assert": [{"type": "contains", "value": "Thanks"}]})
        (test,) = held(suite, target(lambda request: {"text": echo(request), "cost_usd": 1.0}), user).tests
        assert test.best.output is not None
        assert [turn.asked[0]["content"] for turn in test.best.output.turns] == ["When do you open?", "Thanks!"]
        assert test.score == 1.0
        assert test.best.cost_usd == pytest.approx(2.5)
        system, *said = spoken(seen[1])
        assert "Know when it opens." in system[1]
        assert [role for role, _ in said] == ["user", "assistant", "user"]
        assert said[-1][1] == "1: When do you open?"

    def test_it_speaks_after_what_is_written_and_no_longer_than_allowed(self, tmp_path: Path) -> None:
        user, seen = self.visitor(*"bcde")
        suite = conversation(tmp_path, turns=["a"], user=USER, **{"assert": [OK]})
        (test,) = held(suite, target(echo), user).tests
        assert test.best.output is not None
        assert [turn.asked[0]["content"] for turn in test.best.output.turns] == ["a", "b", "c", "d"]
        assert len(seen) == 3

    def test_it_has_an_agents_persona(self, tmp_path: Path, sample_root: Path) -> None:
        user, seen = self.visitor("b", END)
        suite = conversation(tmp_path, turns=["a"], user={**USER, "agent": "dwight"}, **{"assert": [OK]})
        (test,) = held(suite, target(echo), user, world_root=lambda: sample_root).tests
        assert "Dwight" in seen[0].messages[0]["content"]
        assert test.best.output is not None
        assert [turn.asked[0].get("name") for turn in test.best.output.turns] == [None, "dwight"]

    @pytest.mark.parametrize(
        ("lines", "reason", "answered"),
        [([END], "empty", 0), (["one"], "crashed", 1)],
        ids=["who says nothing", "who cannot go on"],
    )
    def test_one_that_fails_is_an_error_that_shows_what_was_said(
        self, tmp_path: Path, lines: list[str], reason: str, answered: int
    ) -> None:
        def say(request: Request) -> Any:
            return lines.pop(0) if lines else TargetError("crashed", "gone")

        suite = conversation(tmp_path, user=USER, **{"assert": [OK]})
        (test,) = held(suite, target(echo), target(say, name="visitor")).tests
        assert test.error is not None
        assert test.error.reason == reason
        shown = test.best.output.turns if test.best.output else []
        assert len(shown) == answered


class TestRecorded:
    def test_a_run_is_replayed_from_its_own_rows(self, tmp_path: Path) -> None:
        def answer(request: Request) -> dict[str, Any]:
            took = {"duration_ms": [3, 7][request.turn], "token_usage": {"input": 2, "output": 1}}
            return {"text": "ok", **took}

        latency = {"type": "latency", "max_ms": 5}
        turns = ["one", {"user": "two", "assert": [latency]}]
        suite = conversation(tmp_path, turns=turns, each_turn=[latency], **{"assert": [OK]})
        rows = [test.to_dict() for test in held(suite, target(answer)).tests]
        replay = "targets: [{name: default, provider: replay, path: rows.jsonl}]"
        write(tmp_path, {"rows.jsonl": "".join(json.dumps(row) + "\n" for row in rows), "targets.yaml": replay})
        by_target = run_suite(suite, targets=load_targets(tmp_path / "targets.yaml"))
        by_file = run_suite(suite, responses=load_responses(tmp_path / "rows.jsonl"))
        for again in (by_target, by_file):
            assert [item.to_dict() for item in again.tests[0].best.results] == rows[0]["results"]
            assert again.tests[0].to_dict()["output"] == rows[0]["output"]
        assert rows[0]["token_usage"] == {"input": 4, "output": 2}
        assert [item["score"] for item in rows[0]["results"]] == [1.0, 0.0, 0.0]

    def test_answers_alone_belong_to_the_turns_that_are_written(self, tmp_path: Path) -> None:
        suite = conversation(tmp_path, turns=["one", {"user": "two", "assert": [{"type": "equals", "value": "b"}]}])
        said = [{"role": "assistant", "content": text} for text in "ab"]
        assert run(suite, {"chat": {"output_messages": said}}).tests[0].score == 1.0

    def test_who_would_play_the_user_is_nothing_that_a_recorded_conversation_rests_on(self, tmp_path: Path) -> None:
        said = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "ok"}]
        (tmp_path / "rows.jsonl").write_text(json.dumps({"id": "chat", "output_messages": said}), "utf-8")
        suite = conversation(tmp_path, user=USER, **{"assert": [OK]})
        digests = set()
        for command in ("a", "b"):
            (tmp_path / "targets.yaml").write_text(
                "targets: [{name: default, provider: replay, path: rows.jsonl},"
                f"{{name: visitor, provider: cli, command: {command}}}]",
                encoding="utf-8",
            )
            options = RunOptions(keyed=True)
            (test,) = run_suite(suite, targets=load_targets(tmp_path / "targets.yaml"), options=options).tests
            assert test.score == 1.0
            digests.add(test.digest)
        assert len(digests) == 1

    @pytest.mark.parametrize(
        ("said", "reason"),
        [
            ([("user", "one"), ("assistant", "a")], "invalid_response"),
            ([("user", "one"), ("assistant", "a"), ("user", "three"), ("assistant", "b")], "stale"),
            ([("assistant", "a")], "invalid_response"),
        ],
        ids=["too few turns", "other words", "too few answers"],
    )
    def test_another_conversation_is_an_error(self, tmp_path: Path, said: list[tuple[str, str]], reason: str) -> None:
        suite = conversation(tmp_path, turns=["one", "two"], **{"assert": [OK]})
        messages = [{"role": role, "content": text} for role, text in said]
        (test,) = run(suite, {"chat": {"output_messages": messages}}).tests
        assert test.error is not None
        assert test.error.reason == reason


def test_a_kept_answer_to_a_file_that_has_changed_is_not_taken(tmp_path: Path) -> None:
    write(tmp_path, {"order.txt": "one"})
    said = [{"role": "user", "content": [{"type": "file", "value": "order.txt"}]}]
    suite = conversation(tmp_path, turns=[{"user": said}, "two"], **{"assert": [OK]})
    held(suite, first := target(), cache=True)
    held(suite, again := target(), cache=True)
    write(tmp_path, {"order.txt": "another"})
    held(suite, second := target(), cache=True)
    assert (len(first.asked), len(again.asked), len(second.asked)) == (2, 0, 2)


@pytest.mark.parametrize(
    ("lost_at", "turns", "score", "reason"),
    [(None, 12, 1.0, None), (7, 12, 1.0, None), (6, 12, 0.0, None), (1, 12, 0.0, None),
     (None, 5, None, "too_short"), (None, 3, None, "too_short")],
    ids=["held", "lost after", "lost at", "never there", "ends too early", "too few messages"],
)  # fmt: skip
def test_the_turn_from_which_a_character_is_lost(
    tmp_path: Path, sample_root: Path, lost_at: int | None, turns: int, score: float | None, reason: str | None
) -> None:
    def points(request: JudgeRequest) -> int:
        *_, entry = request.trajectory.content()
        number = int(str(entry["text"]).partition(":")[0])
        return 8 if lost_at is None or number < lost_at else 2

    fades = {"type": "fades", "agent": "pam", "half_life_at_least": 6}
    suite = conversation(tmp_path, turns=[f"line {n}" for n in range(turns)], **{"assert": [fades]})
    (test,) = held(suite, target(echo), judge=lambda: judged(points), world_root=lambda: sample_root).tests
    (item,) = test.best.results
    assert (item.score, item.error and item.error.reason) == (score, reason)
    if item.details:
        assert (item.details["lost_from"], len(item.details["scores"])) == (lost_at, turns)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"turns": []}, "turns: must not be empty"),
        ({"turns": [1]}, "turns[0]: must be a mapping"),
        ({"turns": [{"user": "a", "asert": []}]}, "unknown key 'turns[0].asert'; did you mean 'assert'?"),
        ({"turns": [{"criteria": "a"}]}, "turns[0].user is required"),
        ({"turns": [{"user": "a", "assert": [{"type": "contans"}]}]}, "contans"),
        ({"user": {"target": "t"}}, "goal is required"),
        ({"turns": ["a", "b"], "user": {"target": "t", "goal": "g", "turns": 1}}, "user.turns allows 1"),
        ({"input": "a", "each_turn": [OK]}, "each_turn is for conversations"),
        ({"turns": ["a"], "assert": []}, "there is nothing to check"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=r"suite\.eval\.yaml:\d+") as error:
        conversation(tmp_path, **{"assert": [OK], **fields})
    assert said in str(error.value)


def test_a_changed_line_is_another_test(tmp_path: Path) -> None:
    digests = set()
    for fields in (
        {"turns": ["a"]},
        {"turns": ["b"]},
        {"turns": ["a"], "each_turn": [OK]},
        {"turns": ["a"], "user": {"target": "default", "goal": "g", "turns": 1}},
    ):
        suite = conversation(tmp_path, **{"assert": [OK]}, **fields)
        (test,) = held(suite, target(), keyed=True).tests
        digests.add(test.digest)
    assert len(digests) == 4
