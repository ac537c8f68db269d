"""What the store knows of claims, from runs that were really saved."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.judging.verdict import Evidence, JudgeRequest, Unscored, Verdict
from persona_pipeline.lab.claims.noise import NoiseReport, measure_noise
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.testing.worlds import write_small_world
from persona_pipeline.world import World
from tests.support.worlds import write_yaml

WEEKS = 6
FIRST = datetime(2026, 3, 2, 9, tzinfo=UTC)
CLAIMS = ("fine", "nine", "zero", "absent", "unquotable", "two-ways", "weekly", "nobody-minds")


@pytest.fixture
def world(tmp_path: Path) -> World:
    said = [
        (agent, "general", (FIRST + timedelta(days=7 * week, minutes=n)).isoformat(), f"Kettle {week}/{n}")
        for week in range(WEEKS)
        for n, agent in enumerate(("ann", "bob", "ann"))
    ]
    root = write_small_world(tmp_path / "world", said)
    for folder in (root / "propositions").iterdir():
        (folder / "_default.yaml").unlink()
    rows = [{"id": name, "claim": f"{{{{agent_name}}}} is {name}"} for name in CLAIMS]
    rows[-1]["inverted"] = True
    write_yaml(root / "propositions" / "adherence" / "ann.yaml", {"dimension": "adherence", "propositions": rows})
    rows = [{"id": "alone", "claim": "{{agent_name}} stands alone in {{channel_name}}"}]
    write_yaml(
        root / "propositions" / "convergence" / "_default.yaml", {"dimension": "convergence", "propositions": rows}
    )
    return World.open(root)


def answer(request: JudgeRequest) -> Verdict:
    entry = request.trajectory.entries[-1]
    week = int(entry.text.split()[1].split("/")[0])
    draw = random.Random(f"{request.proposition_id} {week} {request.sample}")
    scores = {
        "fine": draw.choice((6, 7, 7, 8)),
        "nine": 9,
        "zero": 0,
        "absent": 7 if week == 0 else None,
        "unquotable": draw.choice((6, 7)),
        "two-ways": draw.choice((2, 8)),
        "weekly": (9, 5, 8, 4, 9, 5)[week],
        "nobody-minds": 0,
        "alone": 7,
    }
    score = scores[request.proposition_id]
    holds = request.proposition_id != "unquotable"
    quotes = (Evidence(entry.message_id, entry.text, True), Evidence(entry.message_id, "said by no one", holds))
    return Verdict(
        request.proposition_id,
        score=score,
        unscored=Unscored.NOT_APPLICABLE if score is None else None,
        evidence=quotes if score is not None else (),
    )


def evaluated(world: World, weeks: int = WEEKS, samples: int = 3) -> None:
    judge = ScriptedJudge(answer)
    for week in range(weeks):
        ends = FIRST + timedelta(days=7 * week, hours=1)
        run_evaluation(world, judge, EvaluationRequest(agents=["ann"], as_of=ends, samples=samples, window="5d"))


def reasons(report: NoiseReport) -> dict[str, str]:
    return {item.id: "; ".join(item.reasons) for item in report.claims if item.reasons}


def test_each_claim_that_is_out_of_order_is_named_with_its_reason_and_no_other(world: World) -> None:
    evaluated(world)
    report = measure_noise(world)
    world.store.close()
    found = reasons(report)
    assert found.keys() == {"nine", "zero", "absent", "unquotable", "two-ways", "weekly", "nobody-minds"}
    assert found["nine"].startswith("9 in each of 6 windows")
    assert found["nobody-minds"] == found["nine"], "an anti-pattern that is never true stands at 9"
    assert found["zero"].startswith("0 in each of 6 windows")
    assert found["absent"].startswith("not applicable in 83% of windows")
    assert found["unquotable"].startswith("50% of 36 quotes do not stand")
    assert "it can be read in two ways" in found["two-ways"]
    assert found["weekly"].startswith("moves by 2.3 from window to window")
    assert len(report.rewrite) == 5
    assert report.claims[0].trouble >= report.claims[-1].trouble == 0
    by_id = {item.id: item for item in report.claims}
    fine, alone = by_id["fine"], by_id["alone"]
    assert (fine.windows, fine.scored, fine.nines, fine.not_applicable) == (6, 6, 0, 0)
    assert fine.judge_sd is not None and 0.3 < fine.judge_sd < 1.2
    assert fine.window_sd is not None and fine.window_sd < 0.6, "what the judge alone makes of it is taken off"
    assert alone.windows == 6, "its label is another in each window, and the claim the same"


def test_of_an_older_wording_nothing_is_counted(world: World) -> None:
    evaluated(world, weeks=3)
    path = world.root / "propositions" / "adherence" / "ann.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("is weekly", "is fickle"), encoding="utf-8")
    judge = ScriptedJudge(answer)
    run_evaluation(world, judge, EvaluationRequest(agents=["ann"], as_of=FIRST + timedelta(days=21, hours=1)))
    windows = {item.id: item.windows for item in measure_noise(world, ["ann"], ["adherence"]).claims}
    world.store.close()
    assert (windows["weekly"], windows["fine"]) == (1, 4)


def test_few_windows_say_nothing_of_always(world: World) -> None:
    evaluated(world, weeks=3)
    assert reasons(measure_noise(world, ["ann"], ["convergence"])) == {}
    assert reasons(measure_noise(world)).keys() <= {"unquotable", "two-ways"}
    with pytest.raises(ConfigError, match="holds no evaluation of these claims"):
        measure_noise(world, ["bob"], ["adherence"])
    world.store.close()


def test_windows_in_which_something_fell_are_no_noise(world: World) -> None:
    def fallen(request: JudgeRequest) -> Verdict:
        week = int(request.trajectory.entries[-1].text.split()[1].split("/")[0])
        return Verdict(request.proposition_id, score=0 if week == WEEKS - 1 else 7 + request.sample % 2)

    for week in range(WEEKS):
        ends = FIRST + timedelta(days=7 * week, hours=1)
        asked = EvaluationRequest(
            agents=["ann"], dimensions=["adherence"], as_of=ends, samples=4, window="5d", update_baseline=not week
        )
        run_evaluation(world, ScriptedJudge(fallen), asked)
    fine = next(item for item in measure_noise(world, ["ann"]).claims if item.id == "fine")
    world.store.close()
    assert fine.mean == pytest.approx((7.5 * 5 + 0) / 6)
    assert fine.window_sd == 0
    assert fine.reasons == ()
