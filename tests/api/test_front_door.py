"""From a world to scores in Python, as in a notebook: the same scores as the command line's."""

import ast
import asyncio
import inspect
import json
import re
import shutil
import threading
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import persona_pipeline as pp
from persona_pipeline.cli.app import app
from persona_pipeline.judging.verdict import Question
from persona_pipeline.reporting.render import json_text
from persona_pipeline.testing import ScriptedJudge, WorldBuilder, write_small_world

PROJECT = Path(__file__).parents[2]
BEFORE = "2026-06-14T23:59:59Z"


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What stands in a notebook's memory after docs/reference/python.md was typed into it, loop running."""
    folder = tmp_path_factory.mktemp("notebook")
    world = folder / "my-world"
    for name in ("personas", "propositions", "messages", "recordings", "baselines", "suites"):
        shutil.copytree(PROJECT / name, world / name)
    page = (PROJECT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    script = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    memory: dict[str, Any] = {}

    async def notebook() -> None:
        found = eval(compile(script, "notebook", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), memory)
        if inspect.isawaitable(found):
            await found

    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        asyncio.run(notebook())
    assert len([line for line in script.splitlines() if line]) <= 10
    yield memory | {"folder": world}
    memory["world"].store.close()


def test_ten_lines_lead_from_a_world_to_frames(typed: dict[str, Any]) -> None:
    scores, dropped = typed["scores"], typed["dropped"]
    assert list(scores.index) == ["dwight", "jim", "michael", "pam"]
    assert round(scores.loc["michael", "adherence"], 1) == 0.3 and round(scores.loc["pam", "adherence"], 1) == 8.4
    assert (
        dropped["agent"].iloc[0] == "michael"
        and dropped["score"].is_monotonic_increasing
        and dropped["quote"].notna().any()
    )
    assert typed["before"].exit_code == 0 and typed["now"].exit_code == 1
    assert typed["change"].worse and repr(typed["change"]) == "<EvaluationComparison: 3 in character, 1 drifted>"
    assert repr(typed["suite"]).startswith("<SuiteRun: personas: 4 of 4 passed")


def test_the_command_line_says_the_same(typed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(typed["folder"])
    told = json.loads(CliRunner().invoke(app, ["evaluate"]).stdout)
    own = json.loads(json_text(typed["now"].report))
    assert told["agents"] == own["agents"]
    assert told["exit_code"] == own["exit_code"]


def test_frames_have_the_same_columns_whatever_is_in_them(typed: dict[str, Any]) -> None:
    now, suite = typed["now"], typed["suite"]
    assert len(now.to_frame("agent")) == 4 and len(now.to_frame()) == 20
    assert now.to_frame("claim")["score"].dtype == "float64"
    assert str(now.to_frame()["window_end"].dtype).endswith("UTC]")
    nothing = pp.Evaluation(pp.RunReport())
    for by in ("agent", "dimension", "claim", "message"):
        assert nothing.to_frame(by).dtypes.to_dict() == now.to_frame(by).dtypes.to_dict()
    assert list(suite.to_frame()["verdict"]) == ["pass"] * 4
    assert {"propositions", "regex"} <= {*suite.to_frame("assert")["type"]}
    with pytest.raises(pp.ConfigError, match="no row a 'week'"):
        now.to_frame("week")
    with pytest.raises(pp.ConfigError, match="no row a 'claim'"):
        suite.to_frame("claim")


def test_a_report_is_written_by_its_ending(typed: dict[str, Any], tmp_path: Path) -> None:
    for name, said in (
        ("a.html", "<!doctype html"),
        ("a.json", '"exit_code": 1'),
        ("a.md", "michael"),
        ("a.xml", "testsuite"),
    ):
        assert said in typed["now"].write(tmp_path / name).read_text(encoding="utf-8").lower()
    with pytest.raises(pp.ConfigError, match=r"must end in \.json"):
        typed["now"].write(tmp_path / "a.pdf")


def test_what_is_unscored_is_no_number(tmp_path: Path) -> None:
    world = pp.load_world(write_small_world(tmp_path))
    found = pp.evaluate(world, agents="ann", dimensions="adherence")
    frame = found.to_frame("claim")
    assert pd.isna(frame["score"]).all() and {*frame["unscored"]} == {"unrecorded"}
    for asked in ((), ("adherence",), ("adherence", "adherence-claim")):
        with pytest.raises(pp.UnscoredError, match="ann"):
            found.score("ann", *asked)
    assert found.exit_code == 3
    world.store.close()


def test_a_baseline_is_taken_compared_with_and_confirmed(tmp_path: Path) -> None:
    builder = WorldBuilder(tmp_path).persona("ann", "Ann is dry.").claim("adherence", "dry", "{{agent_name}} is dry")
    for hour in range(12):
        builder.say("ann", f"Hm {hour}.", at=f"2026-03-02T{hour:02}:00:00Z")
    world = builder.open()
    level = {"now": 8}
    judge = ScriptedJudge(lambda request: level["now"], live=True)
    assert pp.load_baseline(world, "ann") is None
    before = pp.take_baselines(world, judge=judge, dimensions=["adherence"])
    assert [path.name for path in before.baselines] == ["ann.json"] and before.exit_code == 0
    baseline = pp.load_baseline(world, "ann")
    assert baseline is not None and baseline.dimensions == {"adherence": before.score("ann", "adherence")}
    asked = len(judge.asked)
    level["now"] = 2
    builder.say("ann", "Happy to help!", at="2026-03-02T13:00:00Z")
    after = pp.evaluate(world, judge=judge, dimensions="adherence")
    # Once, and again what fell: a live judge is not believed the first time.
    assert len(judge.asked) - asked > 1 and after.exit_code == 1
    assert "regression" in {finding.kind for finding in after.findings}
    for known in (before, baseline, [baseline]):
        compared = pp.compare(known, after)
        assert compared.worse and compared.score("ann", "adherence") == 2
        assert list(compared.to_frame()["baseline"]) == [8]
    assert not pp.compare(after, after).worse
    assert pp.compare(before, after, regression_delta=9, proposition_delta=9).worse is False
    world.store.close()


def test_only_what_goes_together_is_compared(typed: dict[str, Any], tmp_path: Path) -> None:
    now, suite = typed["now"], typed["suite"]
    baseline = pp.load_baseline(typed["world"], "pam")
    for before, after, said in (
        (now, baseline, "can only be what was before"),
        (now, suite, "two of a kind"),
        (suite, now, "with an evaluation or with baselines"),
        (baseline.model_copy(update={"agent_id": "otto"}), now, "no agent in common"),
        (suite, [], "no test in common"),
    ):
        with pytest.raises(pp.ConfigError, match=said):
            pp.compare(before, after)
    only = pp.compare(baseline, now)
    assert list(only.agents) == ["pam"] and only.only_after == ["dwight", "jim", "michael"]


def test_two_runs_of_a_suite_are_paired_by_test(tmp_path: Path) -> None:
    suite = tmp_path / "words.eval.yaml"
    suite.write_text(
        "tests:\n- {id: one, input: '?', assert: [{type: contains, value: tea}]}\n"
        "- {id: two, input: '?', assert: [{type: contains, value: cup}]}\n",
        encoding="utf-8",
    )
    good = pp.run_suite(suite, responses=pp.read_responses({"one": "tea", "two": "cup"}))
    bad = asyncio.run(pp.run_suite_async(pp.load_suite(suite), responses=pp.read_responses({"one": "tea", "two": "?"})))
    only = pp.run_suite(suite, responses=pp.read_responses({"one": "tea"}), test_ids="one")
    assert (good.score, bad.score, [test.id for test in only.tests]) == (1.0, 0.5, ["one"])
    compared = pp.compare(good, bad)
    assert (compared.mean, compared.losses) == (-0.5, 1)
    assert list(compared.to_frame()["delta"]) == [0, -1]
    assert "-0.500 on average over 2 tests" in repr(compared) and "two" in compared._repr_html_()


def test_a_name_that_nothing_is_asked_by_is_an_error(small_world: pp.World, tmp_path: Path) -> None:
    for call, said in (
        (lambda: pp.evaluate(small_world, agent="ann"), "'agent'.*did you mean 'agents'"),
        (lambda: pp.run_suite(tmp_path / "none.yaml", response={}), "'response'.*did you mean 'responses'"),
    ):
        with pytest.raises((TypeError, pp.ConfigError), match=said):
            call()
    with pytest.raises(pp.ConfigError, match="as_of"):
        pp.evaluate(small_world, as_of="yesterday")
    with pytest.raises(pp.ConfigError, match="max_usd"):
        pp.evaluate(small_world, judge=ScriptedJudge(lambda request: 5), max_usd=1.0)


def test_a_running_loop_goes_on_while_it_is_awaited_and_bears_the_plain_call(small_world: pp.World) -> None:
    released = threading.Event()

    class Waiting(ScriptedJudge):
        async def judge(self, requests: Sequence[pp.JudgeRequest]) -> list[pp.Verdict]:
            # Only the loop that awaits the evaluation can release it.
            assert released.wait(60)
            return await super().judge(requests)

    async def notebook() -> tuple[pp.Evaluation, pp.Evaluation]:
        awaited = asyncio.create_task(pp.evaluate_async(small_world, judge=Waiting(lambda request: 6), agents="ann"))
        await asyncio.sleep(0)
        released.set()
        return await awaited, pp.evaluate(small_world, judge=ScriptedJudge(lambda request: 6), agents="ann")

    first, second = asyncio.run(notebook())
    assert first.score("ann") == second.score("ann")


class Tags(HTMLParser):
    """What a browser would find in a piece of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.values: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.values += [value or "" for _, value in attrs]


HOSTILE = "</td><script src=//x.test/a.js></script><img src=http://x.test onerror=alert(1)> \u202e &amp; \x1b[31m"


def test_a_notebook_shows_any_text_as_text(tmp_path: Path) -> None:
    report = pp.RunReport(findings=[pp.Finding(kind="names", exit_code=0, message=HOSTILE)])
    world = pp.load_world(write_small_world(tmp_path / "world"))
    scored = pp.evaluate(world, judge=ScriptedJudge(lambda request: 4), agents="ann")
    scored.report.findings = report.findings
    scored.report.agents[HOSTILE] = scored.report.agents["ann"]
    suite = tmp_path / "words.eval.yaml"
    test = {"id": HOSTILE.replace("\x1b[31m", ""), "input": "?", "assert": [{"type": "contains", "value": HOSTILE}]}
    suite.write_text(json.dumps({"tests": [test]}), encoding="utf-8")
    run = pp.run_suite(suite, responses=pp.read_responses({test["id"]: HOSTILE + "no"}))
    for shown in (scored, pp.Evaluation(report), run, pp.compare(run, run), pp.compare(scored, scored)):
        found = Tags(shown._repr_html_())
        assert found.tags <= {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}
        assert found.attributes <= {"style"}
        assert not [value for value in found.values if "url" in value or "//" in value]
        assert "&lt;script" in shown._repr_html_() and "\x1b" not in shown._repr_html_() and len(repr(shown)) < 120
    world.store.close()


def test_a_scripted_judge_answers_suites_and_the_gate_too(tmp_path: Path) -> None:
    def reply(question: Question) -> Mapping[str, Any] | pp.Unscored:
        if question.kind != "gate":
            return {"score": 0.9, "reasoning": "r", "hits": [], "misses": []}
        claims = json.loads(question.context[-1].partition("\n")[2])["claims"]
        return {"verdicts": [{"id": claim["id"], "reason": "r", "score": 9} for claim in claims]}

    judge = ScriptedJudge(lambda request: 8, reply=reply)
    suite = tmp_path / "tea.eval.yaml"
    suite.write_text("tests: [{id: one, input: '?', criteria: c, assert: [{type: llm_judge}]}]", encoding="utf-8")
    assert pp.run_suite(suite, responses=pp.read_responses({"one": "tea"}), judge=judge).score == 0.9
    world = pp.load_world(write_small_world(tmp_path / "world"))
    gate = pp.open_gate(world, backend=judge, settings=pp.CorrectionSettings(action_gate_enabled=True))
    assert gate.check_sync("ann", "Hm.", channel="general").outcome == "passed"
    assert [question.kind for question in judge.questions][-1] == "gate"
    silent = ScriptedJudge(lambda request: 8)
    assert pp.run_suite(suite, responses=pp.read_responses({"one": "tea"}), judge=silent).exit_code == 3
    world.store.close()
