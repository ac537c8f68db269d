"""Every way of starting an evaluation finds the same: a drop by chance is asked again by all of them, or by none."""

from collections.abc import Callable, Mapping
from pathlib import Path

import dagster as dg
import pytest

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.report import AgentReport
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.world import World
from persona_pipeline.world.messages.files import parse_time
from tests.defs.support import Project, judged_by
from tests.support.evaluating import newest_run
from tests.support.noise import NoisyJudge

# By agent and dimension: score, kind and sentence of each finding.
Found = dict[str, tuple[dict[str, float | None], list[tuple[str, str]]]]


def _found(root: Path, name: str, way: Callable[[Project, Judge, str], None], judge: Judge, as_of: str) -> Found:
    database = root / ".persona" / f"{name}.db"
    database.unlink(missing_ok=True)
    with dg.DagsterInstance.ephemeral() as instance, judged_by(judge):
        way(Project(root, instance, f"sqlite:///{database}"), judge, as_of)
    world = World.open(root, f"sqlite:///{database}")
    reports: Mapping[str, AgentReport | None] = {
        agent_id: run for agent_id in world.agent_ids() if (run := newest_run(world.store, agent_id))
    }
    world.store.close()
    return {
        agent_id: (
            {name: item.score for name, item in report.evaluation.dimensions.items()},
            [(finding.kind, finding.message) for finding in report.findings],
        )
        for agent_id, report in reports.items()
        if report is not None
    }


def _run_evaluation(project: Project, judge: Judge, as_of: str) -> None:
    world = World.open(project.root, project.database_url)
    run_evaluation(world, judge, EvaluationRequest(as_of=parse_time(as_of)))
    world.store.close()


def _ci_job(project: Project, judge: Judge, as_of: str) -> None:
    project.run("persona_regression", run_config={"ops": {"regression_report": {"config": {"as_of": as_of}}}})


def _cohort(project: Project, judge: Judge, as_of: str) -> None:
    project.evaluate_all(as_of=as_of)


def _agents(project: Project, judge: Judge, as_of: str) -> None:
    # How far a week moved the others is known once they are in the store: for the last one they are at once.
    agents = [path.stem for path in sorted((project.root / "personas").iterdir())]
    for agent_id in (*agents, *agents[:-1]):
        project.evaluate(agent_id, as_of=as_of)


# The command line's function, the CI job, the cohort, and a run an agent.
_WAYS: dict[str, Callable[[Project, Judge, str], None]] = {
    "run_evaluation": _run_evaluation,
    "ci_job": _ci_job,
    "cohort": _cohort,
    "an_agent_a_run": _agents,
}


@pytest.mark.slow
def test_a_noisy_judge_finds_the_same_on_every_way(sample_root: Path) -> None:
    # Two agents, of whom one drifted, meet all that four do.
    for name in ("dwight", "jim"):
        (sample_root / f"personas/{name}.yaml").unlink()
        (sample_root / f"baselines/{name}.json").unlink()
    judge = NoisyJudge(sample_root / "recordings", 1.5, 2)
    found = {name: _found(sample_root, name, way, judge, "2026-06-21T23:59:59Z") for name, way in _WAYS.items()}
    first = found.pop("run_evaluation")
    assert first.keys() == {"michael", "pam"}
    for way, its in found.items():
        assert its == first, way
