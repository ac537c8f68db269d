"""Worlds in somebody's own Dagster project: beside each other, beside what is there, and in nobody's way."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest
import sqlalchemy as sa
import yaml
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest
from dagster.components.testing import create_defs_folder_sandbox

import persona_pipeline as pp
from persona_pipeline.base.database import tables
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.defs.platform.dagster_internals import RANGE
from persona_pipeline.defs.platform.resources import WorldResource
from persona_pipeline.testing.worlds import write_small_world
from persona_pipeline.world import World
from tests.defs.shop import CHATS, COLUMNS, OWN, Shop, open_shop
from tests.defs.support import automation_result
from tests.support.worlds import copy_sample, replace_in

ATTRIBUTES: dict[str, dict[str, Any]] = {
    "office": {"settings": {"automation": True, "sensor_seconds": 7, "alert_webhook": "http://127.0.0.1:1/nobody"}},
    "lab": {
        "messages": {"asset": "messages", "columns": COLUMNS},
        "leave_out": ["schedules", "batches"],
        "settings": {"judge_model": "lab-model"},
    },
}


@pytest.fixture
def roots(sample_root: Path, small_root: Path) -> dict[str, Path]:
    for path in (small_root / "messages").iterdir():
        path.unlink()
    return {"office": sample_root, "lab": small_root}


@pytest.fixture(scope="module")
def _loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shop, Path]]:
    """The project of somebody who has chats, with the sample world as its office and a lab that talks in those chats.

    It is loaded once. Beside it a folder with its worlds as they were.
    """
    kept, base = tmp_path_factory.mktemp("kept"), tmp_path_factory.mktemp("shop")
    copy_sample(kept / "office")
    shutil.rmtree(write_small_world(kept / "lab") / "messages")
    roots = {name: Path(shutil.copytree(kept / name, base / name)) for name in ("office", "lab")}
    with dg.DagsterInstance.ephemeral() as instance, open_shop(instance, roots, ATTRIBUTES) as opened:
        yield opened, kept


@pytest.fixture
def shop(_loaded: tuple[Shop, Path], instance: dg.DagsterInstance) -> Iterator[Shop]:
    """That project with its worlds as they were, and an instance that knows nothing."""
    opened, kept = _loaded
    for name, root in opened.roots.items():
        shutil.rmtree(root)
        shutil.copytree(kept / name, root)
    yield replace(opened, instance=instance)
    for resource in (opened.defs.resources or {}).values():
        if isinstance(resource, WorldResource):
            resource.teardown_after_execution(dg.build_init_resource_context())


def saved(shop: Shop, name: str) -> tuple[int, int]:
    """Return how many messages and runs are in a world's store."""
    with shop.store(name) as store, store.connect() as connection:
        messages, runs = (
            connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            for table in (tables.run_messages, tables.evaluation_runs)
        )
    return messages, runs


def test_nothing_of_a_world_has_a_name_of_another_or_of_what_was_there(shop: Shop) -> None:
    repository = shop.defs.get_repository_def()
    own = {
        "messages",
        "evaluate_agent",
        "nightly",
        "world",
        "io_manager",
        "values",
        "evaluation",
        "__ASSET_JOB",
        "broken",
        "break_down",
    }
    # What a schedule of an asset runs is called after the schedule, and no page shows it as a job.
    names = [job.name.removeprefix("__anonymous_asset_job_") for job in repository.get_all_jobs()]
    names += [sensor.name for sensor in repository.sensor_defs] + [item.name for item in repository.schedule_defs]
    names += [*(shop.defs.resources or {})]
    names += [node.name for job in repository.get_all_jobs() for node in job.all_node_defs]
    strangers = {name for name in names if not name.startswith(("office__", "lab__"))}
    assert strangers - own == set()
    specs = {spec.key.to_user_string(): spec for spec in shop.defs.resolve_all_asset_specs()}
    assert specs.pop("messages").group_name == "world"
    for key, spec in specs.items():
        world = key.split("/")[0]
        assert world in ("office", "lab") and (spec.group_name or "").startswith(f"{world}/"), key
        assert spec.partitions_def is None or (spec.partitions_def.name or "").startswith(f"{world}/"), key
        assert {dep.asset_key.path[0] for dep in spec.deps} <= {world, "messages"}, key
    pools = {
        node.pool
        for job in repository.get_all_jobs()
        for node in job.all_node_defs
        if isinstance(node, dg.OpDefinition)
    }
    assert pools == {None, "office__judge", "lab__judge"}
    assert repository.get_job("evaluate_agent").executor_def.name == "multi_or_in_process_executor"
    assert repository.get_job("lab__evaluate_agent").executor_def.name == "multi_or_in_process_executor"


def test_a_world_is_evaluated_in_its_own_store_and_leaves_the_other_alone(shop: Shop) -> None:
    shop.instance.add_dynamic_partitions("office/agents", ["jim", "pam"])
    shop.run("office__evaluate_agent", tags=dict(zip(RANGE, ("jim", "pam"), strict=True)))
    assert shop.instance.get_materialized_partitions(dg.AssetKey(["office", "verdicts"])) == {"jim", "pam"}
    assert {*shop.instance.get_dynamic_partitions("office/agents")} == {"dwight", "jim", "michael", "pam"}
    assert [*shop.instance.get_dynamic_partitions("lab/agents"), *shop.instance.get_dynamic_partitions("agents")] == []
    assert saved(shop, "office")[1] == 2 and not shop.has_store("lab")
    assert {key.path[0] for key in shop.instance.get_asset_keys()} == {"office"}


def test_rows_of_an_asset_become_messages_of_the_world_that_names_it(shop: Shop) -> None:
    result = shop.materialize("messages", "lab/message_rows")
    assert result.success
    [found] = [
        item for item in result.get_asset_materialization_events() if item.asset_key.path == ["lab", "message_rows"]
    ]
    counted = {key: value.value for key, value in found.materialization.metadata.items()}
    assert (counted["added"], counted["left_out"], counted["speakers"]) == (2, 1, "ann, bob")
    with shop.store("lab") as store:
        said = World(shop.roots["lab"], store).messages()
    assert [(message.agent_id, message.channel, message.text) for message in said] == [
        ("ann", "till", "Change is a myth."),
        ("bob", "till", "The till hums in B flat."),
    ]
    assert not shop.has_store("office")
    assert shop.materialize("messages", "lab/message_rows").success and saved(shop, "lab")[0] == 2


DAYS = """
import dagster as dg

@dg.asset(partitions_def=dg.DailyPartitionsDefinition("2026-03-01", end_date="2026-03-20"), io_manager_key="days")
def messages():
    raise NotImplementedError

class Days(dg.ConfigurableIOManager):
    folder: str

    def handle_output(self, context, rows):
        raise NotImplementedError

    def load_input(self, context):
        import json, pathlib
        with open(pathlib.Path(self.folder, "loads"), "a") as log:
            print(context.partition_key, file=log)
        return json.loads(pathlib.Path(self.folder, context.partition_key).read_text())

defs = dg.Definitions(assets=[messages], resources={"days": Days(folder=dg.EnvVar("SHOP_VALUES"))})
"""


def test_of_a_partitioned_asset_only_what_came_is_loaded_by_its_own_io_manager(
    small_root: Path, instance: dg.DagsterInstance
) -> None:
    for path in (small_root / "messages").iterdir():
        path.unlink()

    def brought(*days: str) -> tuple[list[str], int, dg.ExecuteInProcessResult]:
        for day in days:
            said = [{**row, "sent_at": f"{day}T09:00:00Z", "body": f"{row['body']} {day}"} for row in CHATS[:2]]
            (values / day).write_text(json.dumps(said))
            instance.report_runless_asset_event(dg.AssetMaterialization("messages", partition=day))
        loads.write_text("")
        result = shop.materialize("lab/message_rows")
        return loads.read_text().split(), saved(shop, "lab")[0] if shop.has_store("lab") else 0, result

    with open_shop(instance, {"lab": small_root}, ATTRIBUTES, DAYS) as shop:
        values = Path(os.environ["SHOP_VALUES"])
        values.mkdir()
        loads = values / "loads"
        assert brought()[:2] == ([], 0), "nothing was materialized: nothing is loaded"
        assert brought("2026-03-02", "2026-03-04")[:2] == (["2026-03-02", "2026-03-04"], 4)
        assert brought()[:2] == ([], 4)
        assert brought("2026-03-05")[:2] == (["2026-03-05"], 6)
        # A late day, and one again.
        assert brought("2026-03-03", "2026-03-05")[:2] == (["2026-03-03", "2026-03-05"], 8)
        # One that cannot be loaded fails the run; the others are read, and all of them again the next time.
        kept = (values / "2026-03-03").rename(values / "kept")
        instance.report_runless_asset_event(dg.AssetMaterialization("messages", partition="2026-03-03"))
        loaded, messages, result = brought("2026-03-06")
        assert (loaded, messages, result.success) == (["2026-03-03", "2026-03-06"], 10, False)
        kept.rename(values / "2026-03-03")
        loaded, messages, result = brought()
        assert (loaded, messages, result.success) == (["2026-03-03", "2026-03-06"], 10, True)
        assert brought()[0] == []
        # An event log that began anew.
        instance.wipe_assets([dg.AssetKey("messages")])
        instance.report_runless_asset_event(dg.AssetMaterialization("messages", partition="2026-03-02"))
        assert brought()[0] == ["2026-03-02"]


def test_sensors_of_a_world_see_that_world_and_its_edits_make_its_own_assets_stale(shop: Shop) -> None:
    shop.materialize("messages", "lab/message_rows")
    seen = shop.look("lab__source_changes")
    assert isinstance(seen, dg.SensorResult)
    assert {event.asset_key.path[0] for event in seen.asset_events} == {"lab"}
    [added] = seen.dynamic_partitions_requests or ()
    assert (added.partitions_def_name, sorted(added.partition_keys)) == ("lab/agents", ["ann", "bob"])
    for event in seen.asset_events:
        shop.instance.report_runless_asset_event(event)
    shop.instance.add_dynamic_partitions("lab/agents", ["ann", "bob"])
    for world, expected in ("lab", {"ann", "bob"}), ("office", set()):
        keys = dg.AssetSelection.key_prefixes(world).resolve(shop.defs.resolve_asset_graph())
        asked = automation_result(shop.defs, shop.instance, keys)
        assert asked.get_requested_partitions(dg.AssetKey([world, "verdicts"])) == expected
    assert not isinstance(shop.look("office__source_changes"), dg.SkipReason)
    # Nothing is recorded, so its gate fails, but all is made.
    shop.run("lab__evaluate_agent", "ann")
    assert stale(shop, "ann") == set()
    replace_in(shop.roots["lab"] / "personas" / "ann.yaml", "dry", "wry")
    again = shop.look("lab__source_changes")
    assert isinstance(again, dg.SensorResult)
    for event in again.asset_events:
        shop.instance.report_runless_asset_event(event)
    assert stale(shop, "ann") == {"lab/fluency_scores"}


def stale(shop: Shop, agent_id: str) -> set[str]:
    graph = shop.defs.resolve_asset_graph()
    resolver = CachingStaleStatusResolver(shop.instance, graph, LoadingContextForTest(shop.instance))
    keys = [dg.AssetKey(["lab", name]) for name in ("personas", "messages", "fluency_scores", "verdicts")]
    return {key.to_user_string() for key in keys if resolver.get_stale_causes(key, agent_id)}


def test_settings_are_the_worlds_own_and_the_environments_where_it_says_nothing(
    roots: dict[str, Path], instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # What belongs to one world is never taken from the environment: it would be that of both.
    monkeypatch.setenv("PERSONA_ROOT", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PERSONA_DATABASE_URL", f"sqlite:///{tmp_path / 'shared.db'}")
    monkeypatch.setenv("PERSONA_REPORTS", str(tmp_path / "reports"))
    monkeypatch.setenv("PERSONA_JUDGE_MODEL", "everybodys-model")
    with open_shop(instance, roots, ATTRIBUTES) as shop:
        versions = {
            name: shop.defs.resolve_assets_def(dg.AssetKey([name, "fluency_scores"])).specs_by_key[
                dg.AssetKey([name, "fluency_scores"])
            ].code_version
            for name in roots
        }  # fmt: skip
        assert [(versions[name] or "").partition(":")[2] for name in roots] == ["everybodys-model", "lab-model"]
        sensors = {item.name: item for item in shop.defs.get_repository_def().sensor_defs}
        office, lab = sensors["office__automation"], sensors["lab__automation"]
        assert office.default_status is dg.DefaultSensorStatus.RUNNING
        assert lab.default_status is dg.DefaultSensorStatus.STOPPED
        assert (sensors["office__voice_alarms"].minimum_interval_seconds, lab.minimum_interval_seconds) == (7, 10)
        for name in roots:
            shop.materialize(f"{name}/regression_report")
            assert shop.has_store(name)
        assert (roots["office"] / ".persona" / "reports").is_dir()
    assert not (tmp_path / "shared.db").exists() and not (tmp_path / "reports").exists()


def test_what_is_left_out_is_not_there(shop: Shop) -> None:
    names = {item.name for item in shop.defs.get_repository_def().schedule_defs}
    assert {name for name in names if name.startswith("lab__")} == set() and "office__nightly" in names
    keys = shop.defs.resolve_all_asset_keys()
    assert {key.path[0] for key in keys if key.path[-1] == "submitted_batches"} == {"office"}


def test_alerts_are_about_the_worlds_own_runs(shop: Shop) -> None:
    def alert(result: dg.ExecuteInProcessResult) -> object:
        name = "office__run_failure_alert"
        context = dg.build_run_status_sensor_context(
            sensor_name=name,
            dagster_instance=shop.instance,
            dagster_run=result.dagster_run,
            dagster_event=result.get_run_failure_event(),
        ).for_run_failure()
        return shop.defs.resolve_sensor_def(name)(context)

    for other in (shop.run("broken"), shop.run("lab__evaluate_agent", "nobody")):
        assert isinstance(alert(other), dg.SkipReason)
    # Nobody listens there: it tried.
    with pytest.raises(RuntimeError, match="PERSONA_ALERT_WEBHOOK did not take it"):
        alert(shop.run("office__evaluate_agent", "nobody"))


def test_tidying_is_about_the_worlds_own_runs(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = [shop.run("evaluate_agent").run_id for _ in range(2)]
    own = [shop.materialize("messages").run_id for _ in range(2)]
    lab = [shop.materialize("lab/message_files").run_id for _ in range(2)]
    office = [shop.materialize("office/message_files").run_id for _ in range(2)]
    monkeypatch.setattr("persona_pipeline.defs.upkeep.timedelta", lambda days: pd.Timedelta(seconds=-days))
    assert shop.run("office__upkeep").success
    left = {run.run_id for run in shop.instance.get_runs()}
    assert left >= {*mine, *own, *lab, office[1]} and office[0] not in left


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"settings": {"judge_modle": "x"}}, "judge_modle"),
        ({"settings": {"nightly_hour": 31}}, "settings: nightly_hour is 31"),
        ({"world": "nowhere"}, "is no world: it has no personas folder"),
        ({"prefix": "the office"}, "'the office' cannot begin a key"),
        ({"leave_out": ["assets"]}, "leave_out"),
        ({"messages": {"asset": "messages", "returns": "what"}}, "returns"),
    ],
)
def test_what_cannot_be_is_said_with_its_name(
    small_root: Path, instance: dg.DagsterInstance, attributes: dict[str, Any], said: str
) -> None:
    with pytest.raises(Exception) as caught, open_shop(instance, {"lab": small_root}, {"lab": attributes}):
        pass
    error: BaseException | None = caught.value
    texts = []
    while error:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    assert said in "\n".join(texts)


class Labelled(pp.PersonaWorld):
    """A world whose assets belong to somebody."""

    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.replace_attributes(owners=["team:shop"], group_name="voices").merge_attributes(tags={"shop": "yes"})


class Renamed(pp.PersonaWorld):
    """A world whose keys are changed, which cannot work."""

    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.replace_attributes(key=dg.AssetKey(["other", *spec.key.path]))


def test_how_assets_are_shown_can_be_overridden(small_root: Path, instance: dg.DagsterInstance) -> None:
    from dagster.components.testing.utils import component_defs

    defs = component_defs(component=Labelled(world=str(small_root), prefix="lab"))
    specs = defs.resolve_all_asset_specs()
    assert {(tuple(spec.owners), spec.group_name, spec.tags["shop"]) for spec in specs} == {
        (("team:shop",), "voices", "yes")
    }
    run = defs.resolve_job_def("lab__evaluate_agent").execute_in_process(
        instance=instance,
        tags={"dagster/partition": "ann"},
        asset_selection=[dg.AssetKey(["lab", "personas"])],
    )
    assert run.success
    with pytest.raises(ConfigError, match="changed key of lab/"):
        component_defs(component=Renamed(world=str(small_root), prefix="lab"))


def test_the_scaffolder_writes_a_world_that_loads_and_is_valid() -> None:
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.scaffold_component(pp.PersonaWorld, "the-office")
        assert yaml.safe_load((folder / "defs.yaml").read_text(encoding="utf-8"))["attributes"] == {
            "world": "world",
            "prefix": "the_office",
        }
        with sandbox.build_all_defs() as defs:
            assert dg.AssetKey(["the_office", "verdicts"]) in defs.resolve_all_asset_keys()
        assert pp.load_world(folder / "world").agent_ids() == ["mira", "otto"]
        assert not (folder / "world" / "dagster.yaml").exists()


SAID = pd.DataFrame([{**row, "sent_at": pd.Timestamp(row["sent_at"])} for row in CHATS])


@pytest.mark.parametrize("returns", ["rows", "nothing"])
def test_an_asset_of_ones_own_is_checked_agent_by_agent(
    sample_root: Path, instance: dg.DagsterInstance, returns: Any
) -> None:
    columns = {"agent_id": "speaker", "channel": "room", "text": "body", "created_at": "sent_at"}
    checks = pp.build_persona_checks(
        asset="chats", world=sample_root, agents=["jim", "michael"], returns=returns, columns=columns
    )

    @dg.asset
    def chats() -> pd.DataFrame:
        # Nobody of the sample world's: it is evaluated on what it has.
        return SAID.assign(speaker="visitor", sent_at=pd.Timestamp("2026-06-01T00:00:00Z"))

    result = dg.materialize([chats, checks], instance=instance, raise_on_error=False)
    found = {item.check_name: item for item in result.get_asset_check_evaluations()}
    assert {name: item.passed for name, item in found.items()} == {"persona_jim": True, "persona_michael": False}
    assert "adherence 8.7 → 0.3" in (found["persona_michael"].description or "")
    assert result.success, "not blocking: it is for somebody to look at"
    with pp.load_world(sample_root).store.connect() as connection:
        query = sa.select(sa.func.count()).where(tables.run_messages.c.source == "chats")
        assert connection.execute(query).scalar_one() == (2 if returns == "rows" else 0)


def test_a_check_of_nobody_is_refused(small_root: Path) -> None:
    with pytest.raises(ConfigError, match=r"'anne' has no persona file .* did you mean 'ann'"):
        pp.build_persona_checks(asset="chats", world=small_root, agents=["anne"])
    with pytest.raises(ConfigError, match="there is no 'judge_modle'; did you mean 'judge_model'"):
        pp.build_persona_checks(asset="chats", world=small_root, settings={"judge_modle": "x"})


def test_what_an_asset_writes_to_the_store_itself_is_not_brought_in_again(
    roots: dict[str, Path], instance: dg.DagsterInstance
) -> None:
    attributes = {"lab": {"messages": {"asset": "messages", "returns": "nothing"}}}
    with open_shop(instance, {"lab": roots["lab"]}, attributes, OWN) as shop:
        assert dg.AssetKey(["lab", "message_rows"]) not in shop.defs.resolve_all_asset_keys()
