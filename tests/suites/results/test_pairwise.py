"""Two runs judged answer against answer."""

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binomtest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli import main
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings.writing import RecordingWriter
from persona_pipeline.judging.verdict import Layer, Question, Unscored
from persona_pipeline.reporting.text import template_text
from persona_pipeline.suites import read_responses, run_suite
from persona_pipeline.suites.grading.suite_judge import SuiteJudge
from persona_pipeline.suites.running.history import PairwiseResult, judge_pairs, share_interval, sign_test
from tests.suites.support import ScriptedBackend, ScriptedSuiteJudge, load

SUITE = "tests:\n" + "".join(
    f"  - {{id: t{number}, input: question {number}, assert: [{{type: contains, value: a}}]}}\n" for number in range(5)
)
A = {"t0": "a", "t1": "a", "t2": "aaa", "t3": "a same", "t4": "a biased"}
B = {"t0": "aaa", "t1": "aaaa", "t2": "a", "t3": "a same", "t4": "a partial"}


def reply(question: Question) -> dict[str, Any] | Unscored:
    """Prefers the longer answer, and the first one where both are of one length."""
    shown = json.loads(question.evidence)
    return {"reasoning": "longer", "better": "second" if len(shown["second"]) > len(shown["first"]) + 1 else "first"}


def judged(folder: Path, a: dict[str, str], b: dict[str, str], *layers: Layer) -> PairwiseResult:
    suite = load(folder, SUITE)
    rows = []
    for name, answers in (("a", a), ("b", b)):
        result = run_suite(suite, responses=read_responses({**A, **answers}))
        rows.append([test.to_dict() for test in result.tests])
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[-1]), encoding="utf-8")
    judge = SuiteJudge(OpenedJudge(ScriptedBackend(reply), layers))
    try:
        return judge_pairs(judge, rows[0], rows[1], {"": suite})
    finally:
        judge.close()


def test_answers_that_differ_in_their_calls_are_judged(tmp_path: Path) -> None:
    suite = load(tmp_path, SUITE)
    asked: list[Question] = []
    row = {"id": "t0", "verdict": "pass", "output": [{"role": "assistant", "content": "a"}]}
    called = [{"role": "assistant", "content": "a", "tool_calls": [{"tool": "refund", "input": {}}]}]

    def better(question: Question) -> dict[str, Any]:
        asked.append(question)
        return {
            "reasoning": "calls",
            "better": "first" if "refund" in json.loads(question.evidence)["first"] else "second",
        }

    with closing(SuiteJudge(OpenedJudge(ScriptedBackend(better), ()))) as judge:
        found = judge_pairs(judge, [row], [{**row, "output": called}], {"": suite})
    assert (found.wins, len(asked)) == (1, 2)


def test_wins_ties_and_losses_are_counted(tmp_path: Path) -> None:
    found = judged(tmp_path, A, B)
    assert {pair.id: pair.found and pair.found.outcome.value for pair in found.pairs} == {
        "t0": "win",
        "t1": "win",
        "t2": "loss",
        "t3": "tie",
        "t4": "tie",
    }
    assert (found.wins, found.losses, found.ties, found.changed, found.unjudged) == (2, 1, 2, 1, [])
    assert found.win_share == pytest.approx(2 / 3)
    assert template_text("suite_pairwise", {"run": found}).splitlines() == [
        "win     t0  longer | longer",
        "win     t1  longer | longer",
        "loss    t2  longer | longer",
        "Judged in both orders: of 5 tests the second run won 2, lost 1, 2 alike (1 because the choice changed with the order).",
        "It wins 67% of those decided, 95 % interval 21% to 94%; sign test p = 1.000.",
    ]
    assert json.dumps(found.to_dict(), allow_nan=False)


def test_turned_round_wins_are_losses(tmp_path: Path) -> None:
    there, back = judged(tmp_path, A, B), judged(tmp_path, B, A)
    assert (there.wins, there.losses, there.ties) == (back.losses, back.wins, back.ties)


@pytest.mark.parametrize(("wins", "losses"), [(0, 1), (5, 0), (7, 3), (12, 40), (0, 30)])
def test_interval_is_wilsons_and_the_sign_test_is_exact(wins: int, losses: int) -> None:
    expected = binomtest(wins, wins + losses)
    around = expected.proportion_ci(0.95, method="wilson")
    assert share_interval(wins, wins + losses) == pytest.approx((around.low, around.high))
    assert sign_test(wins, losses) == pytest.approx(expected.pvalue)
    assert (share_interval(0, 0), sign_test(0, 0)) == (None, None)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda row: row.pop("output"), "no_answer"),
        (lambda row: row.update(request_key="other"), "stale"),
        (lambda row: row.update(output=[5]), "invalid_response"),
    ],
)
def test_a_pair_that_cannot_be_judged_has_a_reason(tmp_path: Path, change: Any, reason: str) -> None:
    suite = load(tmp_path, SUITE)
    rows = [test.to_dict() for test in run_suite(suite, responses=read_responses(A)).tests]
    broken = [dict(row) for row in rows]
    change(broken[1])
    judge = SuiteJudge(ScriptedSuiteJudge(ScriptedBackend(lambda question: Unscored.UNRECORDED)))
    try:
        found = judge_pairs(judge, rows, broken, {"": suite})
        with pytest.raises(ConfigError, match="'t0' of the results is in none of the suites"):
            judge_pairs(judge, rows, broken, {"other/": suite})
    finally:
        judge.close()
    assert [(pair.id, pair.error.reason) for pair in found.unjudged if pair.error] == [("t1", reason)]
    assert (found.wins, found.losses, found.ties) == (0, 0, 4)


def test_the_command_replays_recordings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judged(tmp_path, A, B, RecordingWriter(tmp_path / "recordings"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERSONA_ROOT", str(tmp_path))
    get_settings.cache_clear()

    def compare(*more: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["persona-pipeline", "suite", "compare", *more])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    code, out, err = compare("a.jsonl", "b.jsonl", "--pairwise", "--suite", "suite.eval.yaml")
    assert (code, out.splitlines()[0]) == (
        0,
        "5 tests: mean difference +0.000, 95 % interval +0.000 to +0.000; 0 won, 0 lost, 5 alike.",
    ), err
    assert "won 2, lost 1, 2 alike" in out
    code, out, _ = compare(
        "a.jsonl", "b.jsonl", "--pairwise", "--suite", "suite.eval.yaml", "--json", "--fail-on", "pairwise"
    )
    assert (code, json.loads(out)["pairwise"]["summary"]["wins"]) == (0, 2)
    (tmp_path / "recordings").rename(tmp_path / "gone")
    code, out, _ = compare("a.jsonl", "b.jsonl", "--pairwise", "--suite", "suite.eval.yaml")
    assert (code, "4 not judged" in out) == (3, True)
    assert compare("a.jsonl", "b.jsonl", "--pairwise")[0] == 2
    assert compare("a.jsonl", "b.jsonl", "--fail-on", "pairwise")[0] == 2
