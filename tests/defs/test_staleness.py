"""Which agents' scores are out of date, and why."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest

from persona_pipeline.definitions import defs
from persona_pipeline.testing.worlds import write_small_world
from tests.defs.support import Project
from tests.support.worlds import replace_in, write_yaml

AGENTS = ("ann", "bob")
SCORES = ("adherence_scores", "fluency_scores")


def stale(project: Project) -> dict[tuple[str, str], list[str]]:
    """Return why scores are stale, by asset and agent; fresh ones are left out."""
    graph = defs.resolve_asset_graph()
    resolver = CachingStaleStatusResolver(project.instance, graph, LoadingContextForTest(project.instance))
    found = {}
    for name in (*SCORES, "verdicts"):
        for agent_id in AGENTS:
            causes = resolver.get_stale_causes(dg.AssetKey(name), agent_id)
            if causes:
                found[name, agent_id] = sorted(
                    f"{cause.reason}: {cause.dependency_asset_key.to_user_string()}"
                    for cause in causes
                    if cause.dependency_asset_key
                )
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The small world, everybody evaluated; to be copied."""
    with dg.DagsterInstance.ephemeral() as instance:
        small = Project(write_small_world(tmp_path_factory.mktemp("fresh") / "small"), instance)
        small.tick()
        for agent_id in AGENTS:
            small.evaluate(agent_id)
        yield small


@pytest.fixture
def fresh(finished: Project, tmp_path: Path, instance: dg.DagsterInstance) -> Project:
    copied = finished.copied(tmp_path / "fresh", instance)
    assert stale(copied) == {}
    return copied


def test_a_look_turns_scores_stale_and_one_alone_is_made_fresh_alone(fresh: Project) -> None:
    evaluated = fresh.instance.get_runs_count()
    replace_in(fresh.root / "personas/bob.yaml", "machines", "engines")
    fresh.observe()
    why = ["has a new dependency data version: personas"]
    assert stale(fresh) == {(name, "bob"): why for name in SCORES}
    assert fresh.instance.get_runs_count() == evaluated
    fresh.evaluate("bob", ("personas", "adherence_scores"))
    assert set(stale(fresh)) == {("fluency_scores", "bob"), ("verdicts", "bob")}


def test_an_edited_default_file_makes_its_dimension_stale_for_all(fresh: Project) -> None:
    replace_in(fresh.root / "propositions/fluency/_default.yaml", "interesting", "boring")
    fresh.tick()
    why = ["has a new dependency data version: proposition_sets/fluency"]
    assert stale(fresh) == {("fluency_scores", agent_id): why for agent_id in AGENTS}


def test_an_edited_baseline_makes_only_the_comparison_stale(fresh: Project) -> None:
    write_yaml(fresh.root / "baselines/bob.json", {"agentId": "bob", "dimensions": {"fluency": 5}})
    fresh.tick()
    assert stale(fresh) == {("verdicts", "bob"): ["has a new dependency data version: baseline_files"]}


def test_a_run_over_many_agents_leaves_them_as_fresh_as_a_run_each(small: Project) -> None:
    small.tick()
    small.evaluate_all()
    assert stale(small) == {}
    replace_in(small.root / "personas/bob.yaml", "machines", "engines")
    small.tick()
    assert set(stale(small)) == {(name, "bob") for name in SCORES}
    small.evaluate_all()
    assert stale(small) == {}
