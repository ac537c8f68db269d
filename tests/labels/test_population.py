"""Judgments with their verdicts, and which labels are of claims that are still asked."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.calibrate import calibrate_world
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.labels.files import Label
from persona_pipeline.judging.open import JudgeOptions, open_judge
from persona_pipeline.world import World
from tests.support.judged import judged_population
from tests.support.labels import label_of, write_labels
from tests.support.messages_server import MessagesServer
from tests.support.worlds import replace_in


def test_a_fresh_copy_of_the_sample_world_has_every_judgment_that_is_recorded(sample_world: World) -> None:
    found = judged_population(sample_world)
    recorded = [
        row["key"]
        for path in sorted((sample_world.root / "recordings").glob("[!s]*/*.jsonl"))
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())
        if row.get("kind", "proposition") == "proposition"
    ]
    assert sorted(item.key for item in found) == sorted(set(recorded))
    first = found[0]
    assert len(first.verdicts) == 1
    assert {(item.model, item.prompt_version) for item in first.verdicts} == {
        ("claude (read for the sample world)", "rubric-2026-11")
    }
    assert first.request.trajectory.entries
    some = judged_population(sample_world, ["pam"], ["fluency", "adherence"])
    assert {(item.request.agent_id, item.dimension) for item in some} == {("pam", "fluency"), ("pam", "adherence")}


def test_what_a_live_judge_said_is_found_in_the_store_with_its_repeats(
    small_world: World, server: MessagesServer
) -> None:
    assert judged_population(small_world) == []
    judge = open_judge("anthropic", small_world, JudgeOptions())
    run_evaluation(small_world, judge, EvaluationRequest(samples=2))
    found = judged_population(small_world)
    assert {item.dimension for item in found} >= {"adherence", "fluency", "convergence"}
    assert all(len(item.verdicts) == 2 for item in found)
    labels = [label_of(item.request, 3, labeller="ada") for item in found]
    said = WorldReader(small_world).known.on_labels(labels)
    assert [[v.score for v in own] for own in said] == [[v.score for v in item.verdicts] for item in found]


def test_a_verdict_in_store_and_recordings_counts_once(small_world: World, server: MessagesServer) -> None:
    judge = open_judge("anthropic", small_world, JudgeOptions(record=True))
    run_evaluation(small_world, judge, EvaluationRequest())
    assert [len(item.verdicts) for item in judged_population(small_world)] == [1] * server.paid


def _labelled(world: World, agent_id: str, dimension: str) -> list[Label]:
    found = judged_population(world, [agent_id], [dimension])
    labels = [label_of(item.request, 5, labeller="ada") for item in found]
    write_labels(world.root / "labels", labels)
    return labels


def _edit(*path: str, old: str, new: str) -> Callable[[Path], None]:
    return lambda root: replace_in(root.joinpath(*path), old, new)


def _remove(*path: str) -> Callable[[Path], None]:
    return lambda root: root.joinpath(*path).unlink()


PERSONA = ("personas", "michael.yaml")
CLAIMS = ("propositions", "adherence", "michael.yaml")


@pytest.mark.parametrize(
    ("dimension", "change", "is_used"),
    [
        pytest.param("adherence", _edit(*CLAIMS, old='claim: "', new='claim: "Really, '), False, id="claim edited"),
        pytest.param(
            "adherence", _edit(*CLAIMS, old="- id: michael-", new="- id: renamed-"), False, id="claim renamed"
        ),
        pytest.param("fluency", _remove("propositions", "fluency", "michael.yaml"), False, id="no claims"),
        pytest.param(
            "adherence", _edit(*PERSONA, old="display_name: Michael Scott", new="display_name: Mike"), True, id="name"
        ),
        pytest.param("adherence", _edit(*PERSONA, old="persona: |\n", new="persona: |\n  New.\n"), True, id="persona"),
        pytest.param(
            "adherence", _edit("messages", "general.jsonl", old='"text": "', new='"text": "So. '), True, id="messages"
        ),
        pytest.param("adherence", _remove(*PERSONA), True, id="no persona"),
    ],
)
def test_a_label_is_used_while_its_claim_is_asked(
    dimension: str, change: Callable[[Path], None], is_used: bool, sample_world: World
) -> None:
    labels = _labelled(sample_world, "michael", dimension)
    change(sample_world.root)
    found = calibrate_world(sample_world)
    assert (found.unused == 0) is is_used
    assert found.labelled == len(labels) - found.unused
