"""What starts eval suites: the files they are made of, and the agents they ask about. See `test_recovery.py` for undone edits."""

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.defs.platform.dagster_internals import RANGE
from persona_pipeline.defs.suites import reload_note
from persona_pipeline.suites.running.opening import SuiteFile, suite_files
from persona_pipeline.suites.running.suite_run import look_at_suite
from tests.defs.suites_support import DESK, TARGETS, Suites
from tests.support.worlds import replace_in, write_yaml


class TestAutomation:
    def test_the_first_look_runs_everything_and_the_next_nothing(self, world: Suites) -> None:
        world.write("other.eval.yaml", "execution: {target: unused}\ntests: [{id: t, input: hi, criteria: c}]\n")
        assert (world.tick(), world.tick()) == (["desk", "other"], [])

    def test_an_edit_of_any_file_it_names_is_another_version_and_undoing_it_the_earlier_one(
        self, world: Suites
    ) -> None:
        world.write("check.py", "print(0)\n")
        world.write("cases.jsonl", '{"id": "c", "input": "hi", "criteria": "x"}\n')
        world.write("template/a.txt", "a")
        head = "execution: {targets: [good, bad]}\nworkspace: {template: ./template}\n"
        world.write("desk.eval.yaml", f"{head}assert: [{{type: contains, value: hello}}]\ntests: cases.jsonl\n")
        judge = "{type: code_judge, script: [python3, check.py]}"
        world.write(
            "coded.eval.yaml", f"execution: {{target: good}}\ntests: [{{id: t, input: hi, assert: [{judge}]}}]\n"
        )
        before = versions(world)
        for name, old, new, suite in (
            ("desk.eval.yaml", "hello", "hallo", "desk"),
            ("answers/bad.jsonl", "go away", "come in", "desk"),
            ("targets.yaml", "response: hello", "response: hallo", "desk"),
            ("cases.jsonl", "hi", "ho", "desk"),
            ("template/a.txt", "a", "b", "desk"),
            ("check.py", "0", "1", "coded"),
        ):
            replace_in(world.root / "suites" / name, old, new)
            assert (name, versions(world)[suite] != before[suite]) == (name, True)
            replace_in(world.root / "suites" / name, new, old)
            assert (name, versions(world)) == (name, before)
        for name, old, new in (("targets.yaml", "name: unused", "name: spare"), ("check.py", "0", "1")):
            replace_in(world.root / "suites" / name, old, new)
        assert versions(world)["desk"] == before["desk"], "it asks neither that target nor that program"

    def test_a_broken_file_is_run_once_and_again_when_it_is_mended(self, world: Suites) -> None:
        world.tick()
        world.write("desk.eval.yaml", "tests: [")
        assert (world.tick(), world.tick()) == (["desk"], [])
        world.write("desk.eval.yaml", DESK)
        assert (world.tick(), world.tick()) == (["desk"], [])

    def test_partitions_follow_the_files(self, world: Suites) -> None:
        world.observe()
        assert world.targets() == ["good", "bad"]
        replace_in(world.root / "suites/desk.eval.yaml", "good, bad", "unused, bad")
        world.observe()
        assert sorted(world.targets()) == ["bad", "unused"]
        world.write("desk.eval.yaml", "tests: [")
        world.observe()
        assert sorted(world.targets()) == ["bad", "unused"]

    def test_an_edit_makes_the_results_stale_until_they_are_made_again(self, world: Suites) -> None:
        world.tick()
        world.run()
        assert set(statuses(world).values()) == {StaleStatus.FRESH}
        replace_in(world.root / "suites/answers/bad.jsonl", "go away", "hello")
        world.observe()
        assert set(statuses(world).values()) == {StaleStatus.STALE}, "before anything runs"
        world.materialize("bad")
        assert statuses(world) == {"good": StaleStatus.STALE, "bad": StaleStatus.FRESH}

    def test_a_source_materialized_by_hand_is_what_the_sensor_would_report(self, world: Suites) -> None:
        world.tick()
        replace_in(world.root / "suites/answers/bad.jsonl", "go away", "hello")
        job = world.definitions.resolve_implicit_global_asset_job_def()
        source = dg.AssetKey(["suite_files", "desk_file"])
        tags = dict(zip(RANGE, ("good", "bad"), strict=True))
        assert job.execute_in_process(instance=world.instance, asset_selection=[source], tags=tags).success
        found, _ = world.look("source_changes")
        assert isinstance(found, dg.SensorResult) and found.asset_events == []
        assert (world.tick(), world.tick()) == (["desk"], [])

    def test_a_suite_the_graph_was_loaded_without_is_named(self) -> None:
        files = [SuiteFile((name,), f"{name}.eval.yaml") for name in ("kept", "gone", "new")]
        kept, gone, new = files
        assert reload_note([kept], [kept]) == ""
        note = reload_note([kept, new], [kept, gone])
        assert "new: new; gone: gone" in note and "reload the code location" in note

    def test_a_missing_file_has_a_version(self, world: Suites) -> None:
        assert look_at_suite(world.root, SuiteFile(("gone",), "gone.eval.yaml"), get_settings())[0].startswith(
            "invalid-"
        )


def versions(world: Suites) -> dict[str, str]:
    """Return the version of each suite, which the sensor reports."""
    return {file.label: look_at_suite(world.root, file, get_settings())[0] for file in suite_files(world.root)}


def statuses(world: Suites) -> dict[str, StaleStatus]:
    graph = world.definitions.resolve_asset_graph()
    resolver = CachingStaleStatusResolver(world.instance, graph, LoadingContextForTest(world.instance))
    return {target: resolver.get_status(dg.AssetKey(["suites", "desk"]), target) for target in ("good", "bad")}


class TestAgents:
    """What a suite reads of the agents it asks about is part of it; what it does not read is not."""

    ASSERTS = {  # noqa: RUF012
        "fluency": "{type: propositions, agent: bob, dimension: fluency}",
        "drift": "{type: persona_drift, agent: bob, dimensions: [adherence]}",
        "inside": "{type: composite, assert: [{type: propositions, agent: bob}], aggregator: {type: weighted_average}}",
        "ann": "{type: propositions, agent: ann, dimension: fluency}",
        "none": "{type: contains, value: hello}",
    }

    @pytest.fixture
    def asking(self, world: Suites) -> Suites:
        (world.root / "suites/desk.eval.yaml").unlink()
        for name, written in self.ASSERTS.items():
            world.write(
                f"{name}.eval.yaml",
                f"execution: {{target: good}}\ntests: [{{id: t, input: hi, criteria: c, assert: [{written}]}}]\n",
            )
        world.write("targets.yaml", f"{TARGETS}  - {{name: bob, provider: persona, agent: bob, model: m}}\n")
        world.write("played.eval.yaml", "execution: {target: bob}\ntests: [{id: t, input: hi, criteria: c}]\n")
        return world

    READ = (
        ("personas/bob.yaml", ["drift", "fluency", "inside", "played"]),
        # A dimension's own claims, in either spelling, and everybody's.
        ("propositions/fluency/bob.yaml", ["fluency"]),
        ("propositions/adherence/bob.yml", ["drift", "inside"]),
        ("propositions/fluency/_default.yaml", ["ann", "fluency"]),
        ("propositions/convergence/_default.yaml", []),
        ("baselines/bob.json", ["drift"]),
        ("baselines/ann.json", []),
        ("messages/all.jsonl", []),
    )

    def test_an_edit_changes_the_suites_that_read_the_file(self, asking: Suites) -> None:
        now = versions(asking)
        for path, expected in self.READ:
            file = asking.root / path
            file.parent.mkdir(exist_ok=True)
            file.write_bytes((file.read_bytes() if file.exists() else b"") + b"\n")
            before, now = now, versions(asking)
            assert (path, sorted(name for name in now if now[name] != before[name])) == (path, expected)

    def test_a_persona_that_another_world_keeps(self, asking: Suites) -> None:
        asking.write(
            "targets.yaml", "targets: [{name: bob, provider: persona, agent: bob, model: m, root: ../elsewhere}]\n"
        )
        before = versions(asking)["played"]
        replace_in(asking.root / "personas/bob.yaml", "machines", "engines")
        assert versions(asking)["played"] == before
        write_yaml(asking.root / "elsewhere/personas/bob.yaml", {"display_name": "Bob", "persona": "Another Bob."})
        assert versions(asking)["played"] != before

    def test_an_agent_that_is_not_there_is_the_runs_to_report(self, asking: Suites) -> None:
        for agent in ("../../x", "nobody", "'a\\0b'"):
            asking.write(
                "none.eval.yaml",
                "execution: {target: good}\n"
                f"tests: [{{id: t, input: hi, criteria: c, assert: [{{type: propositions, agent: {agent}}}]}}]\n",
            )
            found, opened = look_at_suite(asking.root, SuiteFile(("none",), "none.eval.yaml"), get_settings())
            assert not found.startswith("invalid-") and not isinstance(opened, ConfigError), agent
