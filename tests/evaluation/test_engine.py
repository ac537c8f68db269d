"""Evaluating agents: idempotent, stale recordings told apart, nothing guessed."""

import asyncio
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.baselines.golden import find_baseline
from persona_pipeline.guard.baselines.statistics import spread_of
from persona_pipeline.guard.report import Result, RunReport
from persona_pipeline.judging.open import JudgeOptions, OpenedJudge, open_judge
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.judging.verdict import Unscored, Verdict
from persona_pipeline.reporting.statistics import gather
from persona_pipeline.scoring.results import DimensionEvaluation
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.world import World
from persona_pipeline.world import names as world_names
from tests.support.evaluating import evaluate_agent, evaluate_world, load_run, planned
from tests.support.worlds import replace_in, write_jsonl, write_yaml

BEFORE_DRIFT = datetime(2026, 6, 14, 23, 59, 59, tzinfo=UTC)


def replay(world: World, **options) -> RunReport:
    return evaluate_world(world, judge=OpenedJudge(RecordedBackend(world.root / "recordings")), **options)


def numbers(report: RunReport) -> dict[tuple[str, str, str], float | None]:
    return {
        (agent_id, dimension, key): row.score
        for agent_id, agent in report.agents.items()
        for dimension, item in agent.evaluation.dimensions.items()
        for key, row in item.propositions.items()
    }


INTACT: dict[tuple[str, str, str], float | None] = {}


def intact(world: World) -> dict[tuple[str, str, str], float | None]:
    """Return the scores of the unchanged sample world, which is evaluated for the first test that asks."""
    if not INTACT:
        INTACT.update(numbers(replay(world)))
    return INTACT


def unrecorded(report: RunReport) -> set[tuple[str, str, str]]:
    return {
        (agent_id, dimension, key)
        for agent_id, agent in report.agents.items()
        for dimension, item in agent.evaluation.dimensions.items()
        for key, row in item.propositions.items()
        if row.unscored == "unrecorded"
    }


def test_a_dimension_says_what_was_asked_and_how_often_each_was_judged(small_world: World) -> None:
    def finished(samples: int) -> dict[str, DimensionEvaluation]:
        # Of the first week there is nothing to be consistent with.
        asked = EvaluationRequest(agents=["ann"], samples=samples, as_of=datetime(2026, 3, 4, tzinfo=UTC))
        (plan,) = planned(small_world, asked)
        return plan.finish([Verdict(item.proposition_id, score=7) for item in plan.requests])

    once, twice = finished(1), finished(2)
    assert {name: item.samples for name, item in twice.items()} == {
        name: 1 if name == "consistency" else 2 for name in once
    }
    assert {item.samples for item in once.values()} == {1}
    hashes = {name: item.input_hash for name, item in once.items()}
    assert {name: item.input_hash for name, item in twice.items()} == hashes, "however often"
    replace_in(small_world.root / "propositions" / "adherence" / "_default.yaml", "interesting", "surprising")
    changed = {name for name, item in finished(1).items() if item.input_hash != hashes[name]}
    assert changed == {"adherence"}


Edit = Callable[[Path], None]
Touched = Callable[[tuple[str, str, str]], bool]


@pytest.mark.parametrize(
    ("edit", "touched"),
    [
        pytest.param(
            lambda root: replace_in(root / "personas" / "pam.yaml", "Marlow Paper", "Marlow Papers"),
            lambda key: key[:2] == ("pam", "adherence"),
            id="one word of a persona",
        ),
        pytest.param(
            lambda root: replace_in(
                root / "propositions/adherence/dwight.yaml", "{{agent_name}} ", "{{agent_name}} often "
            ),
            lambda key: key == ("dwight", "adherence", "dwight-rules-and-rankings"),
            id="one word of an agent's claim",
        ),
        pytest.param(
            lambda root: replace_in(root / "propositions/fluency/_default.yaml", "{{agent_name}}", "The speaker"),
            lambda key: key[1:] == ("fluency", "varied-openings"),
            id="one word of a default claim",
        ),
        pytest.param(
            lambda root: replace_in(
                root / "messages" / "direct.jsonl", "Great work today, Jim.", "Good work today, Jim."
            ),
            lambda key: key[0] == "michael" and key[1] in ("adherence", "consistency", "fluency") and key[2][0] != "_",
            id="one word of a direct message",
        ),
    ],
)
def test_an_edit_makes_unrecorded_what_it_touches_and_only_that(
    sample_world: World, edit: Edit, touched: Touched
) -> None:
    before = intact(sample_world)
    edit(sample_world.root)
    report = replay(sample_world)
    stale = unrecorded(report)
    assert stale, "the edit touches something"
    assert {key for key in before if touched(key)} >= stale
    after = numbers(report)
    assert {key: after[key] for key in after.keys() - stale if key[2][0] != "_"} == {
        key: before[key] for key in before.keys() - stale if key[2][0] != "_"
    }
    assert all(after[key] is None for key in stale)
    assert {report.agents[agent_id].conclusion.verdict for agent_id, _, _ in stale} <= {Result.CANNOT_TELL, Result.FELL}
    assert report.exit_code == 1, "michael fell all the same"
    assert any("--judge anthropic --record" in finding.remedy for finding in report.all_findings())


def test_a_channel_message_touches_everyone_judged_on_that_channel(sample_world: World) -> None:
    path = sample_world.root / "messages" / "general.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    target = next(row for row in reversed(lines) if row["agent_id"] == "jim")
    target["text"] += " Indeed."
    write_jsonl(path, lines)
    stale = unrecorded(replay(sample_world))
    by_agent = {(agent, dimension) for agent, dimension, _ in stale}
    assert {("pam", "convergence"), ("pam", "ideas_quantity"), ("jim", "adherence")} <= by_agent
    assert ("pam", "adherence") not in by_agent
    assert ("pam", "fluency") not in by_agent


def test_the_same_inputs_write_the_same_rows(sample_world: World) -> None:
    def rows() -> tuple[list, list]:
        runs, scores = tables.evaluation_runs, tables.evaluation_scores
        with sample_world.store.connect() as connection:
            return (
                connection.execute(sa.select(runs.c.id, runs.c.overall_score).order_by(runs.c.id)).all(),
                connection.execute(sa.select(scores.c.id, scores.c.score).order_by(scores.c.id)).all(),
            )  # pyright: ignore[reportReturnType]

    replay(sample_world)
    first = rows()
    replay(sample_world)
    assert rows() == first
    assert len(first[0]) == 4


def test_dimensions_evaluated_apart_join_one_run(sample_world: World) -> None:
    judge = OpenedJudge(RecordedBackend(sample_world.root / "recordings"))
    whole = evaluate_agent(sample_world, "pam", judge=judge)
    with sample_world.store.begin() as connection:
        connection.execute(sa.delete(tables.evaluation_runs))
    for dimension in reversed(whole.dimensions):
        part = evaluate_agent(sample_world, "pam", judge=judge, dimensions=[dimension])
    assert part.dimensions == whole.dimensions
    assert part.overall == whole.overall
    assert part.run_id == whole.run_id


def test_the_same_scores_on_both_databases(sample_root: Path, database_url: str) -> None:
    world = World.open(sample_root, database_url)
    report = replay(world)
    reference = json.loads((sample_root / "baselines" / "jim.json").read_text(encoding="utf-8"))
    before = replay(world, as_of=BEFORE_DRIFT).agents["jim"].evaluation
    assert {name: item.score for name, item in before.dimensions.items()} == reference["dimensions"]
    run = load_run(world.store, before.run_id)
    assert run is not None
    assert run.evaluation == before
    assert report.exit_code == 1
    world.store.close()


def test_an_empty_window_is_no_evidence_and_never_a_pass(sample_world: World) -> None:
    report = replay(sample_world, as_of=datetime(2020, 1, 1, tzinfo=UTC))
    assert report.exit_code == 3
    for agent in report.agents.values():
        for item in agent.evaluation.dimensions.values():
            assert (item.score, item.unscored) == (None, "no_evidence")
    assert report.findings[0].kind == "nothing_evaluated"


def test_only_named_dimensions_are_compared(sample_world: World) -> None:
    report = replay(sample_world, dimensions=["fluency"], agents=["michael", "jim"])
    assert set(report.agents) == {"michael", "jim"}
    assert {finding.dimension for finding in report.all_findings() if finding.kind != "terms"} == {"fluency"}
    narrow = report.agents["michael"].evaluation
    assert list(narrow.dimensions) == ["fluency"]
    assert narrow.overall == narrow.dimensions["fluency"].score


@pytest.mark.parametrize("reason", [Unscored.INVALID_OUTPUT, Unscored.TIMEOUT, Unscored.API_ERROR, Unscored.REFUSAL])
def test_a_judge_that_fails_gives_no_number_and_code_3(small_world: World, reason: Unscored) -> None:
    judge = ScriptedJudge(lambda request: Verdict(request.proposition_id, unscored=reason, detail="broken"))
    report = evaluate_world(small_world, judge=judge)
    assert report.exit_code == 3
    judged = {key: score for key, score in numbers(report).items() if not key[2].startswith("_")}
    assert set(judged.values()) == {None}
    scores = tables.evaluation_scores
    with small_world.store.connect() as connection:
        found = connection.execute(
            sa.select(sa.func.count()).where(
                scores.c.score.is_not(None), scores.c.proposition_id.not_like(r"\_%", escape="\\")
            )
        )
        assert found.scalar() == 0


def test_a_budget_stop_outranks_coverage(small_world: World) -> None:
    judge = ScriptedJudge(lambda request: Verdict(request.proposition_id, unscored=Unscored.BUDGET))
    assert evaluate_world(small_world, judge=judge).exit_code == 4


def test_every_problem_of_every_agent_is_told_at_once(small_world: World) -> None:
    write_yaml(small_world.root / "personas" / "ann.yaml", {"display_name": 5})
    write_yaml(small_world.root / "propositions" / "fluency" / "_default.yaml", {"dimension": "fluent"})
    with pytest.raises(ConfigError) as error:
        evaluate_world(small_world, judge=ScriptedJudge(lambda _: 5))
    lines = str(error.value).splitlines()
    assert len(lines) == 3
    assert sum("fluency/_default.yaml" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"agents": ["mikael"]}, "did you mean 'michael'"),
        ({"agents": []}, "no agents"),
        ({"dimensions": ["adherance"]}, "did you mean 'adherence'"),
        ({"dimensions": []}, "no dimensions"),
        ({"window": "7"}, "not a length of time"),
        ({"window": "999999d"}, "reaches before year 1"),
        ({"as_of": datetime(2026, 6, 1)}, "has no offset"),
    ],
)
def test_bad_options_are_explained(sample_world: World, options: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        replay(sample_world, **options)


def test_history_and_baseline_of_a_run(sample_world: World) -> None:
    for path in (sample_world.root / "baselines").iterdir():
        path.unlink()
    judge = OpenedJudge(RecordedBackend(sample_world.root / "recordings"))
    run = run_evaluation(sample_world, judge, EvaluationRequest(history=2, update_baseline=True))
    assert run.report.exit_code == 3, "michael's window is refused, and nothing is compared with it"
    assert {finding.agent_id for finding in run.report.all_findings() if finding.kind == "known_drift"} == {"michael"}
    assert len(run.baselines) == 3
    # Windows that were looked at beside are in no baseline that was asked for of one.
    pam = find_baseline(sample_world.root / "baselines", "pam")
    assert pam is not None and spread_of(pam, "adherence").windows == 1
    points = gather(sample_world, run.report).statistics["history"]["michael"]
    assert [point["dimensions"]["consistency"] is None for point in points] == [True, False, False]
    assert points[1]["overall"] > 8 > points[2]["overall"]
    with sample_world.store.connect() as connection:
        runs = tables.evaluation_runs
        marked = connection.execute(sa.select(runs.c.agent_id).where(runs.c.is_baseline)).scalars().all()
    assert sorted(marked) == ["dwight", "jim", "pam"]


def test_evaluation_works_inside_a_running_loop(small_world: World) -> None:
    async def caller() -> float | None:
        return evaluate_agent(small_world, "ann", judge=ScriptedJudge(lambda _: 7)).overall

    assert asyncio.run(caller()) is not None


def test_recordings_serve_every_order_of_message_files(sample_world: World) -> None:
    first = intact(sample_world)
    path = sample_world.root / "messages" / "sales.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(reversed(lines)), encoding="utf-8")
    assert numbers(replay(sample_world)) == first


def test_a_broken_persona_does_not_touch_the_others(sample_root: Path, sample_world: World, tmp_path: Path) -> None:
    together = intact(World.open(sample_root, f"sqlite:///{tmp_path}/all.db"))
    before = {key: score for key, score in together.items() if key[0] in ("pam", "jim")}
    replace_in(sample_world.root / "personas" / "dwight.yaml", "persona:", "persone:")
    assert numbers(replay(sample_world, agents=["pam", "jim"])) == before
    with pytest.raises(ConfigError, match=r"dwight\.yaml:\d+:1: unknown key 'persone'"):
        replay(sample_world)


def test_a_dimension_whose_propositions_are_gone_fails_the_gate_and_is_not_read_from_an_earlier_run(
    sample_world: World,
) -> None:
    assert replay(sample_world, as_of=BEFORE_DRIFT).exit_code == 0
    shutil.rmtree(sample_world.root / "propositions" / "adherence")
    report = replay(sample_world, as_of=BEFORE_DRIFT)
    assert report.exit_code == 3
    assert {agent.evaluation.dimensions["adherence"].score for agent in report.agents.values()} == {None}
    messages = [finding.message for finding in report.all_findings()]
    assert len(messages) == len(report.agents)
    assert all("adherence has a baseline and no claims any more" in message for message in messages)
    assert replay(sample_world, as_of=BEFORE_DRIFT, dimensions=["fluency"]).exit_code == 0


@pytest.mark.parametrize("dimensions", [["adherence"], ["adherence", "fluency"]])
def test_a_dimension_that_is_named_must_have_propositions(sample_world: World, dimensions: list[str]) -> None:
    shutil.rmtree(sample_world.root / "propositions" / "adherence")
    with pytest.raises(ConfigError, match=r"pam has no adherence propositions; write propositions/adherence/_default"):
        replay(sample_world, as_of=BEFORE_DRIFT, dimensions=dimensions)


def test_every_kind_of_finding_can_be_named_and_is_documented() -> None:
    from typer.main import get_command

    from persona_pipeline.cli.app import app
    from persona_pipeline.guard.gate import FAILURES
    from persona_pipeline.guard.report import KINDS

    assert {kind for kinds in FAILURES.values() for kind in kinds} == set(KINDS)
    command = get_command(app).commands["evaluate"]  # pyright: ignore[reportAttributeAccessIssue]
    reference = Path("docs/reference/command-line.md").read_text(encoding="utf-8")
    for option, warns in (("fail_on", True), ("only_fail_on", False)):
        told = next(item.help for item in command.params if item.name == option)
        row = next(line for line in reference.splitlines() if line.startswith(f"| `--{option.replace('_', '-')}` |"))
        groups = {kind.group or kind.name for kind in KINDS.values() if kind.warns is warns and kind.name != "base"}
        for name in groups - {"new_baseline", "accepted", "terms", "reading", "people"}:
            assert name in told and f"`{name}`" in row, name


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("unknown_speaker", {"names"}),
        ("names", {"names"}),
        ("clone", {"clone", "voices"}),
        ("voices", {"clone", "voices"}),
        ("trend", {"trend", "moved"}),
        ("moved", {"moved"}),
    ],
)
def test_an_older_name_of_fail_on_means_what_it_meant(name: str, kinds: set[str]) -> None:
    from persona_pipeline.guard.gate import FAILURES

    assert set(FAILURES[name]) == kinds


def test_a_finding_has_the_exit_code_of_its_kind() -> None:
    from persona_pipeline.guard.report import Finding

    codes = {
        kind: Finding(kind=kind, message="m").exit_code for kind in ("regression", "coverage", "budget", "trend", "odd")
    }
    assert codes == {"regression": 1, "coverage": 3, "budget": 4, "trend": 0, "odd": 0}
    assert Finding(kind="doubted", exit_code=0, message="as an older store has it").exit_code == 0


def test_one_agent_is_evaluated_on_its_own_recordings_and_everybodys_names_read_once(
    sample_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = replay(sample_world).agents["pam"].evaluation
    (sample_world.root / "recordings" / "jim" / "fluency.jsonl").write_text("no recording\n", encoding="utf-8")
    read: list[str] = []
    world_names._SEEN.clear()
    monkeypatch.setattr(world_names, "_parsed", _counted(world_names._parsed, read))
    judge = open_judge("recorded", sample_world, JudgeOptions.of(EvaluationRequest(agents=["pam"])))
    report = evaluate_world(sample_world, judge=judge, agents=["pam"])
    assert report.agents["pam"].evaluation == whole
    assert sorted(read) == ["dwight", "jim", "michael", "pam"], "each once"
    with pytest.raises(ConfigError, match=r"jim/fluency\.jsonl:1"):
        open_judge("recorded", sample_world)


def _counted(inner: Callable[..., Any], read: list[str]) -> Callable[..., Any]:
    return lambda agent_id, *more: (read.append(agent_id), inner(agent_id, *more))[1]
