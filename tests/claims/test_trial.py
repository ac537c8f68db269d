"""Claims of a copy of the sample world, broken on purpose: every blind spot that was planted must be named, and nothing else."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.judging.open import JudgeOptions, open_judge
from persona_pipeline.judging.verdict import JudgeRequest, Unscored, Verdict
from persona_pipeline.lab.claims.matrix import KillMatrix
from persona_pipeline.lab.claims.trial import (
    FAULTS,
    FEWEST_CHANGED,
    INTACT,
    Trial,
    TrialRequest,
    break_case,
    plan_trial,
    run_trial,
)
from persona_pipeline.reporting.pages.experiments import matrix_page
from persona_pipeline.reporting.terminal import page_text
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.world import World
from tests.support.messages_server import Call, MessagesServer, Reply, message, verdicts
from tests.support.noise import NoisyJudge
from tests.support.worlds import write_yaml

BEFORE_DRIFT = datetime(2026, 6, 14, 23, 59, 59, tzinfo=UTC)
REQUEST = TrialRequest("michael", as_of=BEFORE_DRIFT)
Claims = dict[str, dict[str, Mapping[str, object]]]


def write_claims(root: Path, claims: Claims) -> None:
    """Replace the world's claims: by dimension, id and further keys."""
    shutil.rmtree(root / "propositions", ignore_errors=True)
    for dimension, items in claims.items():
        rows = [{"id": name, "claim": f"{{{{agent_name}}}} {name}", **keys} for name, keys in items.items()]
        write_yaml(root / "propositions" / dimension / "michael.yaml", {"dimension": dimension, "propositions": rows})


def windows_of(trial: Trial) -> dict[str, str]:
    """Which window a question is about, by the content of its transcript."""
    return {request.subject["trajectory"]: name for name, plan in trial.windows.items() for request in plan.requests}


def judged(trial: Trial, scores: Mapping[str, Mapping[str, int | None]], default: int = 9) -> KillMatrix:
    """Judge with raw scores by claim and window; None is not applicable."""
    windows = windows_of(trial)

    def answer(request: JudgeRequest) -> Verdict:
        score = scores.get(request.proposition_id, {}).get(windows[request.subject["trajectory"]], default)
        reason = Unscored.NOT_APPLICABLE if score is None else None
        return Verdict(request.proposition_id, score=score, unscored=reason)

    return run_trial(trial, ScriptedJudge(answer))


@pytest.fixture
def one_claim_a_fault(sample_root: Path, sample_world: World) -> Trial:
    """Six claims, each of which one fault lowers; the last is an anti-pattern."""
    names = list(FAULTS)
    write_claims(
        sample_root,
        {
            "adherence": {f"sees-{name}": {} for name in names[:-1]},
            "fluency": {f"sees-{names[-1]}": {"inverted": True}},
        },
    )
    return plan_trial(sample_world, REQUEST)


def catching(trial: Trial, blind: str | None) -> dict[str, dict[str, int | None]]:
    """Each claim falls to 1 under its fault (the anti-pattern rises to 8), but for the one of the blind spot."""
    last = list(FAULTS)[-1]
    found: dict[str, dict[str, int | None]] = {
        f"sees-{name}": {name: 1} for name in FAULTS if name not in (last, blind)
    }
    found[f"sees-{last}"] = dict.fromkeys(trial.windows, 0) | ({} if blind == last else {last: 8})
    return found


def test_every_planted_blind_spot_is_named_and_no_other(one_claim_a_fault: Trial) -> None:
    for blind in (None, *FAULTS):
        matrix = judged(one_claim_a_fault, catching(one_claim_a_fault, blind))
        assert matrix.blind_spots == ([blind] if blind else [])
        dimension = "fluency" if blind == list(FAULTS)[-1] else "adherence"
        assert matrix.dead == ([f"{dimension}/sees-{blind}"] if blind else [])
        kills = {row.name.split("/")[1]: row.kills for row in matrix.claims}
        assert kills == {f"sees-{name}": [] if name == blind else [name] for name in FAULTS}
        assert (matrix.low, matrix.silent, matrix.untested) == ([], {}, {})
        assert matrix.exit_code == 0


def test_claims_that_are_of_no_use_are_named_for_what_they_are(sample_root: Path, sample_world: World) -> None:
    write_claims(
        sample_root,
        {
            "adherence": {
                "good": {},
                "copy-of-good": {},
                "dead": {},
                "low": {},
                "of-everybody": {},
                "courtesies": {"inverted": True},
                "goes-silent": {},
                "never-comes-up": {},
            },
        },
    )
    every = {"dimension": "fluency", "propositions": [{"id": "form", "claim": "{{agent_name}} varies"}]}
    write_yaml(sample_root / "propositions" / "fluency" / "_default.yaml", every)
    trial = plan_trial(sample_world, REQUEST)
    caught = {"boilerplate": 0, "borrowed": 2}
    scores = {
        "good": caught,
        "copy-of-good": caught | {"borrowed": 1},
        "low": dict.fromkeys(trial.windows, 2),
        "of-everybody": {"boilerplate": 1},
        "courtesies": dict.fromkeys(trial.windows, 1) | {"boilerplate": 9},
        "goes-silent": {"boilerplate": None, "borrowed": 0},
        "never-comes-up": dict.fromkeys(trial.windows),
        "form": {"repetition": 1},
    }
    matrix = judged(trial, scores)
    assert matrix.blind_spots == ["flattened", "contradiction"]
    assert matrix.dead == ["adherence/dead"]
    assert matrix.low == ["adherence/low"]
    assert matrix.everybody == ["adherence/dead", "adherence/of-everybody"]
    assert matrix.silent == {"adherence/goes-silent": ["boilerplate"]}
    assert matrix.untested == {"adherence/never-comes-up": "not_applicable"}
    assert {"findings", "kills", "claims", "faults", "usage"} <= matrix.to_dict().keys()
    assert json.loads(json.dumps(matrix.to_dict()))["findings"]["dead"] == ["adherence/dead"]


def test_hard_files_count_by_what_the_judge_said(sample_root: Path, sample_world: World) -> None:
    write_claims(sample_root, {"adherence": {"good": {}}})
    path = sample_root / "propositions" / "adherence" / "michael.yaml"
    write_yaml(path, json.loads(path.read_text(encoding="utf-8")) | {"hard": True})
    trial = plan_trial(sample_world, REQUEST)
    # 9 and 7 are 9 and 5.6 in a hard file, which would pass for a fall of more than 3.
    assert judged(trial, {"good": {"boilerplate": 7}}).dead == ["adherence/good"]


def test_a_noisy_judge_makes_no_kill(sample_root: Path, sample_world: World) -> None:
    """Nothing is caught by these claims: whatever falls is the judge's noise of 1.5 points (3 of 100 seeds make a kill)."""
    write_claims(sample_root, {"adherence": {f"claim-{n}": {} for n in range(20)}})
    trial = plan_trial(sample_world, REQUEST)
    judge = NoisyJudge(sample_root / "recordings", 1.5, seed=1)
    judge._recorded = ScriptedJudge(lambda request: 6)  # pyright: ignore[reportAttributeAccessIssue]
    matrix = run_trial(trial, judge)
    assert matrix.sd_measured and 1.3 < matrix.judge_sd < 1.7
    assert matrix.blind_spots == list(FAULTS)
    assert [row.kills for row in matrix.claims] == [[]] * 20


@pytest.mark.parametrize(
    ("caught", "reads_nothing"),
    [({}, True), (dict.fromkeys(FAULTS, 7), False), ({"boilerplate": 0}, False)],
    ids=["nothing", "a little everywhere", "one fault by every claim"],
)
def test_a_judge_that_reads_nothing_is_no_reason_to_delete_claims(
    caught: dict[str, int | None], reads_nothing: bool, sample_root: Path, sample_world: World
) -> None:
    write_claims(sample_root, {"adherence": {f"claim-{n}": {} for n in range(6)}})
    matrix = judged(plan_trial(sample_world, REQUEST), {f"claim-{n}": caught for n in range(6)})
    text = page_text(matrix_page(matrix))
    assert matrix.reads_nothing is reads_nothing
    assert ("this judge reads nothing of these claims" in text) is reads_nothing
    assert ("blind spot" in text) is not reads_nothing
    assert ("never fails" in text) is (not reads_nothing and caught["boilerplate"] != 0)


def test_a_kill_that_stands_alone_is_judged_again(sample_root: Path, sample_world: World) -> None:
    """Two of three verdicts are bad luck; both that are asked for then are not."""
    write_claims(sample_root, {"adherence": {"unlucky": {}, "fine": {}}})
    trial = plan_trial(sample_world, REQUEST)
    windows = windows_of(trial)

    def answer(request: JudgeRequest) -> int:
        unlucky = request.proposition_id == "unlucky" and request.sample < 2
        return 0 if unlucky and windows[request.subject["trajectory"]] == "flattened" else 9

    judge = ScriptedJudge(answer)
    matrix = run_trial(trial, judge)
    assert len(judge.asked) == matrix.judgments == len(trial.requests) + 2
    cell = matrix.claims[0].faults["flattened"]
    assert (cell.judgments, cell.killed, cell.middle_fall) == (5, False, 0)
    assert matrix.dead == ["adherence/unlucky", "adherence/fine"]


def test_a_fault_changes_what_the_agent_said_in_the_window_and_nothing_else(one_claim_a_fault: Trial) -> None:
    case = one_claim_a_fault.windows[INTACT].case
    for name in FAULTS:
        broken = break_case(case, name, seed=5)
        again, other = break_case(case, name, seed=5), break_case(case, name, seed=6)
        assert broken.case is not None and broken.changed >= FEWEST_CHANGED
        assert again == broken
        assert (other == broken) == (name == "flattened"), "nothing is drawn there"
        assert broken.case.earlier == case.earlier and broken.case.history == case.history
        pairs = [
            pair
            for channel in case.channels
            for pair in zip(case.channels[channel], broken.case.channels[channel], strict=True)
        ]
        assert all(new == replace(old, text=new.text) for old, new in pairs)
        assert all(new == old for old, new in pairs if old.agent_id != "michael")
        own = {message.id: message.text for message in broken.case.messages}
        assert all(own[new.id] == new.text for _, new in pairs if new.agent_id == "michael")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"faults": ["boilerplat"]}, "did you mean 'boilerplate'"),
        ({"dimensions": ["adherance"]}, "unknown dimension"),
        ({"agent_id": "nobody"}, "no persona file"),
        ({"as_of": datetime(2020, 1, 1, tzinfo=UTC)}, "said nothing in the window"),
    ],
)
def test_what_cannot_be_tested_is_an_error(sample_world: World, change: dict, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        plan_trial(sample_world, replace(REQUEST, **change))


def test_a_fault_that_cannot_be_planted_says_why_and_is_no_blind_spot(tmp_path: Path) -> None:
    root = tmp_path / "world"
    write_yaml(root / "personas" / "ann.yaml", {"display_name": "Ann", "persona": "Ann ist knapp."})
    write_yaml(
        root / "propositions" / "adherence" / "_default.yaml",
        {"dimension": "adherence", "propositions": [{"id": "dry", "claim": "{{agent_name}} is dry"}]},
    )
    said = [{"id": "1", "agent_id": "ann", "channel": "a", "text": "Добрый день", "created_at": "2026-03-02T09:00:00Z"}]
    (root / "messages").mkdir()
    (root / "messages" / "all.jsonl").write_text("\n".join(map(json.dumps, said)), encoding="utf-8")
    world = World.open(root)
    matrix = run_trial(plan_trial(world, TrialRequest("ann")), ScriptedJudge(lambda request: 9))
    world.store.close()
    assert {fault.name: bool(fault.why_not) for fault in matrix.faults} == {
        "boilerplate": True,
        "borrowed": True,
        "repetition": True,
        "flattened": False,
        "contradiction": True,
    }
    assert matrix.blind_spots == ["flattened"]
    assert list(matrix.claims[0].faults) == ["flattened"]


def honest(call: Call) -> Reply:
    """A judge that reads: courtesies lower a claim of voice, and shared exclamation marks hold it up."""
    texts = [entry["text"] for entry in json.loads(call.evidence) if "text" in entry]
    loud = round(9 * sum("!" in text for text in texts) / len(texts))
    return message(json.dumps(verdicts(call.body, lambda claim: loud if "loud" in claim else 9)))


def test_a_matrix_of_two_models_is_told(sample_root: Path, sample_world: World) -> None:
    """Recorded by one, the rest asked of another: what drops may be the change of judge."""
    write_claims(sample_root, {"adherence": {"loud": {}}})
    trial = plan_trial(sample_world, REQUEST)
    intact = trial.windows[INTACT].requests[0].subject["trajectory"]

    def answer(request: JudgeRequest) -> Verdict:
        return Verdict("loud", score=9, model="older" if request.subject["trajectory"] == intact else "newer")

    matrix = run_trial(trial, ScriptedJudge(answer))
    assert matrix.models == ["newer", "older"]
    text = page_text(matrix_page(matrix))
    assert "mixed judges: newer, older: what drops may be the change of judge; add --fresh\n" in text


@pytest.mark.parametrize(("options", "code"), [({"max_usd": 0.000001}, 4), ({}, 3)])
def test_what_is_not_judged_is_said_and_catches_nothing(
    sample_root: Path, sample_world: World, server: MessagesServer, options: dict, code: int
) -> None:
    server.always(message("babble"))
    write_claims(sample_root, {"adherence": {"loud": {}}})
    trial = plan_trial(sample_world, replace(REQUEST, samples=1))
    matrix = run_trial(trial, open_judge("anthropic", sample_world, JudgeOptions(**options)))
    assert (matrix.exit_code, sum(matrix.failed.values())) == (code, matrix.judgments)
    assert (matrix.blind_spots, matrix.dead, matrix.low) == ([], [], [])


@pytest.mark.parametrize(
    ("asked", "end", "hours"),
    [
        ({}, "2026-06-14T23:59:59+00:00", 168),
        ({"window": "24h"}, "2026-06-19T17:12:00+00:00", 24),
        ({"as_of": BEFORE_DRIFT}, BEFORE_DRIFT.isoformat(), 168),
    ],
)
def test_what_is_broken_is_what_the_baseline_was_taken_from(
    asked: dict[str, Any], end: str, hours: int, sample_world: World
) -> None:
    trial = plan_trial(sample_world, TrialRequest("michael", faults=["boilerplate"], **asked))
    window = trial.windows[INTACT].scope.window
    assert window.start is not None and window.end.isoformat() == end
    assert window.end - window.start == timedelta(hours=hours)
