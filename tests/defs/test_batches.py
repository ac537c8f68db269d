"""Message batches from Dagster, against a local server: submit, process, collect, evaluate."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from persona_pipeline.definitions import defs
from persona_pipeline.defs.batches import count_open
from persona_pipeline.guard.anchors import FILE, Anchor, AnchoredAgent, save_anchors
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.world import World
from persona_pipeline.world.runs import runs_by_window
from tests.defs.support import Project, metadata_of, requested_by
from tests.support.messages_server import MessagesServer, Reset, status

JUDGMENTS = 10


def facts(result: dg.ExecuteInProcessResult, name: str) -> dict[str, Any]:
    """Return the metadata of an asset."""
    return {key: value.value for key, value in metadata_of(result, name).items()}


def submit(project: Project, *agents: str, **settings: Any) -> dg.ExecuteInProcessResult:
    config = {"ops": {"submitted_batches": {"config": {"agents": list(agents)}}}}
    return project.materialize("submitted_batches", config, **settings)


def submitted(project: Project, *agents: str, **settings: Any) -> dict[str, Any]:
    result = submit(project, *agents, **settings)
    assert result.success
    return facts(result, "submitted_batches")


def collected(project: Project) -> dict[str, Any]:
    result = project.materialize("collected_batches")
    assert result.success
    return facts(result, "collected_batches")


def polled(project: Project) -> list[dict[str, str]]:
    """Return the tags of the collections that the schedule asks for."""
    schedule = defs.get_repository_def().get_schedule_def("open_batches")
    return [dict(request.tags) for request in requested_by(schedule, project)]


def failure(result: dg.ExecuteInProcessResult) -> str:
    (event,) = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    return str(event.step_failure_data.user_failure_data.description)


def test_what_batches_brought_is_evaluated_without_a_call(small: Project, server: MessagesServer) -> None:
    assert not polled(small)
    sent = submitted(small)
    assert (sent["judgments"], sent["submitted"], sent["batches"]) == (JUDGMENTS, JUDGMENTS, "msgbatch_0000")

    server.batches.ended = False
    assert polled(small)
    assert (collected(small)["collected"], collected(small)["still_open"]) == (0, 1)
    server.batches.ended = True
    found = collected(small)
    assert (found["collected"], found["answered"], found["unscored"], found["still_open"]) == (1, JUDGMENTS, 0, 0)
    assert found["usd"] > 0
    assert not polled(small)

    paid = []
    for agent_id in ("ann", "bob"):
        evaluated = small.evaluate(agent_id, judge="anthropic")
        run = metadata_of(evaluated, "verdicts")
        assert run["overall"].value > 0
        paid.append(run["judge/usd"].value)
    # Whoever uses it first bears what the batch cost.
    assert sum(paid) == pytest.approx(found["usd"], abs=1e-4)
    assert (server.calls, server.paid) == ([], 0)


def test_a_batch_brings_the_check_of_the_judge_too(
    small: Project, server: MessagesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSONA_ANCHORS", "20")
    anchors = [Anchor(text=f"Line {number}.", verdict=Role.IN) for number in range(12)]
    known = AnchoredAgent(agent_id="ann", name="Ann", persona="A clerk.", anchors=anchors)
    save_anchors(small.root / "baselines" / FILE, [known])
    assert submitted(small)["submitted"] == JUDGMENTS + 1
    collected(small)
    small.evaluate("ann", judge="anthropic")
    assert server.calls == []
    (run,) = runs_by_window(World.open(small.root).store, "ann")
    assert len(run.result["provenance"]["anchors"]["right"]) == len(anchors)


def test_a_submission_that_is_tried_again_bills_nothing_twice(small: Project, server: MessagesServer) -> None:
    server.batches.lose_response = Reset()
    first = submitted(small)
    assert (first["submitted"], first["uncertain_submissions"]) == (0, 1)
    again = submitted(small)
    assert (again["submitted"], again["under_way"]) == (0, JUDGMENTS)
    assert collected(small)["answered"] == JUDGMENTS
    assert submitted(small)["answered_before"] == JUDGMENTS
    assert [len(requests) for requests in server.batches.created.values()] == [JUDGMENTS]


def test_what_expired_is_said_and_submitted_again(small: Project, server: MessagesServer) -> None:
    submitted(small)
    (requests,) = server.batches.created.values()
    server.batches.outcomes[requests[0]["custom_id"]] = "expired"
    found = collected(small)
    assert (found["answered"], found["unscored"]) == (JUDGMENTS - 1, 1)
    assert submitted(small)["submitted"] == 1


def test_agents_and_dimensions_can_be_chosen(small: Project, server: MessagesServer) -> None:
    assert submitted(small, "ann")["submitted"] == JUDGMENTS // 2


def test_a_batch_above_the_limit_is_not_sent(small: Project, server: MessagesServer) -> None:
    result = submit(small, max_usd=0.000001)
    assert "above the limit of $1e-06; raise PERSONA_MAX_USD" in failure(result)
    assert server.batches.created == {}
    assert submitted(small, max_usd=10.0)["submitted"] == JUDGMENTS
    collected(small)
    # Everything is answered: nothing is left to cost anything.
    assert submitted(small, max_usd=0.000001)["answered_before"] == JUDGMENTS


@pytest.mark.parametrize(
    ("agents", "said"),
    [
        pytest.param(
            ["anna"],
            "agent 'anna' has no persona file; write personas/anna.yaml; did you mean 'ann'?",
            id="an unknown agent",
        ),
        pytest.param(["ann", "bob"], "the API refused (HTTP 400)", id="a refused batch"),
    ],
)
def test_what_cannot_pass_fails_at_once(small: Project, server: MessagesServer, agents: list[str], said: str) -> None:
    server.batches.refuse = status(400, "invalid_request_error")
    assert said in failure(submit(small, *agents))
    assert not polled(small)


def test_without_a_key_it_says_so(small: Project) -> None:
    assert "set ANTHROPIC_API_KEY" in failure(submit(small))


def test_collections_do_not_pile_up(small: Project, server: MessagesServer) -> None:
    submitted(small)
    [tags] = polled(small)
    assert tags["persona/reason"] == "1 open batches"
    run = small.instance.add_run(dg.DagsterRun(job_name="upkeep", tags=tags, status=dg.DagsterRunStatus.STARTED))
    assert not polled(small)
    small.instance.delete_run(run.run_id)
    assert polled(small)


def test_a_store_without_batches_is_not_polled(small_root: Path) -> None:
    world = World.open(small_root)
    assert count_open(world.store) == 0
    world.store.close()
