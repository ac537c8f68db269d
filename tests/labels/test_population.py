"""Judgments with their verdicts, and which labels are of claims that are still asked."""

import json
import shutil

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.calibrate import calibrate_world
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.evaluation.run import run_evaluation
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


# A file, what is replaced in it ("": the file is taken away), by what, and whether labels of a dimension are still used.
CHANGES = [
    ("propositions/adherence/michael.yaml", 'claim: "', 'claim: "Really, ', False),
    ("propositions/adherence/michael.yaml", "- id: michael-", "- id: renamed-", False),
    ("propositions/fluency/michael.yaml", "", "", False),
    ("personas/michael.yaml", "display_name: Michael Scott", "display_name: Mike", True),
    ("personas/michael.yaml", "persona: |\n", "persona: |\n  New.\n", True),
    ("messages/general.jsonl", '"text": "', '"text": "So. ', True),
    ("personas/michael.yaml", "", "", True),
]


def test_a_label_is_used_while_its_claim_is_asked(sample_world: World) -> None:
    found = judged_population(sample_world, ["michael"], ["adherence", "fluency"])
    labels = [label_of(item.request, 5, labeller="ada") for item in found]
    for file, old, new, is_used in CHANGES:
        path, dimension = sample_world.root / file, "fluency" if "fluency" in file else "adherence"
        own = [label for label in labels if label.dimension == dimension]
        write_labels(sample_world.root / "labels", own)
        text = path.read_text(encoding="utf-8")
        if old:
            replace_in(path, old, new)
        else:
            path.unlink()
        found = calibrate_world(sample_world)
        assert (found.unused == 0) is is_used, (file, new)
        assert found.labelled == len(own) - found.unused
        path.write_text(text, encoding="utf-8")
        shutil.rmtree(sample_world.root / "labels")
