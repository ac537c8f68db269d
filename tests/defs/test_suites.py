"""Eval suites as assets: a file an asset, a target a partition."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import open_store
from persona_pipeline.base.settings import Settings, get_settings
from persona_pipeline.defs.component import build_world
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.settings import orchestration
from persona_pipeline.suites.running.opening import suite_files
from tests.defs.suites_support import DESK, TARGETS, Suites
from tests.defs.support import Project, rows_of
from tests.support.messages_server import MessagesServer, message

PROJECT = Path(__file__).parents[2]


def saved(root: Path) -> list[sa.Row]:
    """Return the runs in the store, oldest first."""
    store = open_store(f"sqlite:///{root / '.persona' / 'store.db'}")
    with store.connect() as connection:
        found = list(connection.execute(sa.select(tables.suite_runs).order_by(tables.suite_runs.c.created_at)))
    store.close()
    return found


def failures(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    """Return what failed steps say, by step."""
    found = {}
    for event in result.all_events:
        if event.event_type_value == "STEP_FAILURE":
            data = event.step_failure_data
            said = data.user_failure_data.description if data.user_failure_data else None
            found[str(event.step_key)] = said or (data.error.message if data.error else "")
    return found


def made(result: dg.ExecuteInProcessResult) -> dict[str | None, dict[str, Any]]:
    """Return the metadata of what was materialized, by partition."""
    events = [event for event in result.all_events if event.event_type_value == "ASSET_MATERIALIZATION"]
    return {event.partition: {name: v.value for name, v in event.materialization.metadata.items()} for event in events}


class TestFiles:
    @pytest.mark.parametrize(
        ("names", "expected"),
        [
            pytest.param([], {}, id="none"),
            pytest.param(["order-desk.eval.yaml"], {"order_desk": "order-desk.eval.yaml"}, id="a hyphen"),
            pytest.param(
                ["a.eval.yml", "b.eval.jsonl", "c.yaml"], {"a": "a.eval.yml", "b": "b.eval.jsonl"}, id="endings"
            ),
            pytest.param(["a.eval.jsonl", "a.eval.yaml"], {"a": "a.eval.jsonl"}, id="a sidecar is no suite"),
            pytest.param(["sub/a.eval.yaml", ".x/a.eval.yaml"], {"sub/a": "sub/a.eval.yaml"}, id="folders"),
            pytest.param(["größe 1.eval.yaml"], {"gr__e_1": "größe 1.eval.yaml"}, id="other letters"),
        ],
    )
    def test_a_file_is_a_suite(self, tmp_path: Path, names: list[str], expected: dict[str, str]) -> None:
        for name in names:
            path = tmp_path / "suites" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"\xff not read")
        assert {file.label: file.path for file in suite_files(tmp_path)} == expected

    def test_names_that_would_be_one_stay_apart(self, world: Suites) -> None:
        for name in ("a-b", "a_b", "a b", "a/b", "a__b"):
            world.write(f"{name}.eval.yaml", "")
        paths = {file.label: file.path for file in suite_files(world.root)}
        assert len(paths) == 6 and paths["a_b"] == "a_b.eval.yaml" and paths["a/b"] == "a/b.eval.yaml"
        assert len(world.definitions.resolve_asset_graph().materializable_asset_keys) == 2 * 6

    def test_every_suite_has_a_node_of_its_own(self, world: Suites) -> None:
        """The graph labels a node with the last part of its key: no asset, folder or file of a suite has the same one."""
        for name in ("verdicts", "verdicts_suite", "sub/fluency", "a/desk", "b/desk", "desk_file", "message_files"):
            world.write(f"{name}.eval.yaml", DESK)
        keys = build_world(Place(settings=Settings(root=world.root))).resolve_all_asset_keys()
        labels = Counter(key.path[-1] for key in keys)
        assert [label for label, count in labels.items() if count > 1] == []
        assert dg.AssetKey(["suites", "desk"]) in keys and dg.AssetKey(["suites", "verdicts_suite"]) in keys
        assert dg.AssetKey(["suites", "sub", "sub__fluency"]) in keys
        for folder in ("a", "b"):
            world.write(f"{folder}/targets.yaml", TARGETS)
        world.run("desk", "a/desk", "b/desk")
        there = {key.to_user_string() for key in world.instance.all_asset_keys()}
        assert there == {"suites/desk", "suites/a/a__desk", "suites/b/b__desk"}

    def test_definitions_are_made_of_names_alone(self, world: Suites) -> None:
        world.write("broken.eval.yaml", "tests: [")
        keys = {key.to_user_string() for key in world.definitions.resolve_asset_graph().materializable_asset_keys}
        assert keys == {"suites/desk", "suites/broken", "suite_files/desk_file", "suite_files/broken_file"}


class TestRunning:
    def test_each_target_has_its_own_result_checks_and_row(self, world: Suites) -> None:
        result = world.run()
        assert set(failures(result)) == {"choose_suites"}
        assert "- bad: greets: gate contains-hello" in failures(result)["choose_suites"]
        assert world.checks() == {
            ("good", "gates"): "SUCCEEDED",
            ("good", "verdict"): "SUCCEEDED",
            ("bad", "gates"): "FAILED",
            ("bad", "verdict"): "FAILED",
        }
        assert [(row.target, row.verdict, row.score) for row in saved(world.root)] == [
            ("good", "pass", 1.0),
            ("bad", "fail", 0.5),
        ]
        assert world.targets() == ["good", "bad"]

    def test_people_see_numbers_and_a_table_the_worst_first(self, world: Suites) -> None:
        found = made(world.run())["bad"]
        assert (found["score"], found["total"], found["passed"], found["failed"], found["errors"]) == (0.5, 2, 1, 1, 0)
        rows = rows_of(found["tests"])
        assert [(row["test"], row["verdict"], row["score"]) for row in rows] == [
            ("greets", "fail", "0.00"),
            ("is-short", "pass", "1.00"),
        ]
        assert rows[0]["what is missing"] == "gate contains-hello: The answer does not contain 'hello'."

    def test_one_target_alone_on_a_blank_instance(self, world: Suites) -> None:
        good = world.materialize("good")
        assert good.success and world.targets() == ["good", "bad"]
        assert [(row.target, row.verdict) for row in saved(world.root)] == [("good", "pass")]
        bad = world.materialize("bad")
        assert failures(bad)["suites__desk"].startswith("desk failed\n- bad: greets: gate contains-hello")
        assert world.checks()["bad", "verdict"] == "FAILED"

    def test_the_job_and_the_asset_leave_the_same(self, world: Suites) -> None:
        world.tick()
        whole = next(e for e in world.run().all_events if e.event_type_value == "ASSET_MATERIALIZATION")
        alone = world.materialize("good").asset_materializations_for_node("suites__desk")[0]
        assert set(whole.materialization.metadata) == set(alone.metadata)
        tags = {name: value for name, value in (alone.tags or {}).items() if name.startswith("dagster/")}
        assert {name: (whole.materialization.tags or {}).get(name) for name in tags} == tags

    def test_a_broken_file_fails_its_own_step_at_file_and_line(self, world: Suites) -> None:
        path = world.write("broken.eval.yaml", "tests:\n  - {id: t, input: hi, assert: [{type: contians}]}\n")
        world.write(
            "fine.eval.yaml", "execution: {target: good}\n" + DESK.replace("execution: {targets: [good, bad]}", "")
        )
        failed = failures(world.run())
        assert f"{path}:2:" in failed["choose_suites"] and "desk failed" in failed["choose_suites"]
        assert "did you mean 'contains'" in failed["choose_suites"]
        assert failures(world.materialize("good", "broken"))["suites__broken"].startswith(f"{path}:2:")

    def test_a_target_that_cannot_be_asked_stops_no_other(self, world: Suites) -> None:
        (world.root / "suites/answers/bad.jsonl").unlink()
        result = world.run()
        assert "bad.jsonl" in failures(result)["choose_suites"]
        assert list(made(result)) == ["good"]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            pytest.param("tests: []\n", "the suite has no tests", id="no tests"),
            pytest.param(
                "execution: {target: gone}\ntests: [{id: t, input: hi, criteria: c}]\n", "gone", id="no target"
            ),
            pytest.param(
                'execution: {target: "a...b"}\ntests: [{id: t, input: hi, criteria: c}]\n',
                "rename it",
                id="no partition",
            ),
        ],
    )
    def test_what_cannot_run_is_not_green(self, world: Suites, text: str, said: str) -> None:
        world.write("desk.eval.yaml", text)
        assert said in failures(world.run())["choose_suites"]

    def test_names_are_checked(self, world: Suites) -> None:
        assert "there is no suite 'dask'; did you mean 'desk'?" in failures(world.run("dask"))["choose_suites"]
        assert (
            "'god' is none of its targets; did you mean 'good'?" in failures(world.materialize("god"))["suites__desk"]
        )
        assert world.targets() == ["good", "bad"]

    def test_a_gate_that_could_not_be_judged_is_not_met(self, world: Suites) -> None:
        text = "execution: {target: good}\ntests: [{id: t, input: hi, criteria: c, assert: [{type: llm_judge, required: true}]}]\n"
        world.write("desk.eval.yaml", text)
        assert not world.run().success
        assert set(world.checks().values()) == {"FAILED"}


class TestCode:
    SUITE = "execution: {target: program}\ntests: [{id: t, input: hi, assert: [{type: contains, value: hello}]}]\n"

    @pytest.fixture
    def coded(self, world: Suites) -> Suites:
        world.write("desk.eval.yaml", self.SUITE)
        world.write("targets.yaml", "targets: [{name: program, provider: cli, command: echo hello}]\n")
        return world

    def test_programs_are_not_run_unless_allowed(self, coded: Suites) -> None:
        result = coded.run()
        assert "set PERSONA_SUITE_ALLOW_CODE=1" in failures(result)["choose_suites"]
        assert "PERSONA_SUITE_ALLOW_CODE=1" in made(result)["program"]["remedy"]

    def test_programs_run_when_allowed(self, coded: Suites, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PERSONA_SUITE_ALLOW_CODE", "1")
        orchestration.cache_clear()
        assert coded.run().success


class TestJudge:
    SUITE = (
        "execution: {targets: [good, unused]}\ntests: [{id: t, input: hi, criteria: c, assert: [{type: llm_judge}]}]\n"
    )

    def test_recordings_are_replayed_and_the_sample_world_passes(self, sample: Project) -> None:
        shutil.copytree(PROJECT / "suites", sample.root / "suites")
        assert failures(sample.run("run_eval_suites", run_config=chosen("order_desk", "personas"))) == {}
        assert saved(sample.root)[-1].result["judge"]["name"] == "recorded"

    def test_a_live_judge_is_paid_once(self, world: Suites, monkeypatch: pytest.MonkeyPatch) -> None:
        world.write("desk.eval.yaml", self.SUITE)
        world.write("other.eval.yaml", self.SUITE.replace("input: hi", "input: ho"))
        answer = json.dumps({"reasoning": "r", "hits": [], "misses": [], "score": 0.9})
        with MessagesServer(handler=lambda call: message(answer)) as server:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
            get_settings.cache_clear()
            first = world.run(judge="anthropic")
            assert failures(first) == {}
            # Both targets say the same, so that one judgment serves both.
            assert (server.paid, server.problems) == (2, [])
            assert made(first)["good"]["judge/calls"] == 1 and "judge/calls" not in made(first)["unused"]
            assert world.run(judge="anthropic").success and server.paid == 2

    def test_a_used_up_budget_is_an_error(self, world: Suites, monkeypatch: pytest.MonkeyPatch) -> None:
        world.write("desk.eval.yaml", self.SUITE)
        with MessagesServer() as server:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
            get_settings.cache_clear()
            assert "budget" in failures(world.run(judge="anthropic", max_usd=1e-9))["choose_suites"]
            assert server.calls == []


def chosen(*names: str) -> dict[str, Any]:
    return {"ops": {"choose_suites": {"config": {"suites": list(names)}}}}
