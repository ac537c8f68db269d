"""The rules of the gate, at their very ends: a threshold that is met, a day that has come, a finding that counts."""

from datetime import UTC, date, datetime
from typing import Any

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import AcceptedDrop
from persona_pipeline.base.shares import ShareDrop
from persona_pipeline.evaluation.decide import restricted
from persona_pipeline.guard.anchors import JudgeCheck
from persona_pipeline.guard.baselines.models import BaselineComparison, DimensionComparison, Power
from persona_pipeline.guard.baselines.regression import Rules, compare
from persona_pipeline.guard.findings import power_findings, record_command
from persona_pipeline.guard.gate import (
    GateRules,
    all_dropped,
    exit_code_of,
    facts_findings,
    judge_agent,
    label_findings,
    missing_agent_findings,
    nothing_evaluated,
    run_coverage,
    weighed,
)
from persona_pipeline.guard.known_drift import lower
from persona_pipeline.guard.report import AgentEvaluation, AgentReport, Finding, doubt_of, judge_to_ask
from persona_pipeline.scoring.facts.reading import FactsFound
from persona_pipeline.scoring.results import DimensionEvaluation
from tests.baselines.test_regression import evaluated, golden

TODAY = date(2026, 7, 1)
END = datetime(2026, 7, 1, tzinfo=UTC)


def judged(
    dimensions: dict[str, DimensionEvaluation], before: dict[str, float] | None = None, *, overall: float | None = 8.0,
    claims: dict[str, dict[str, float]] | None = None, sample_size: int = 9, **rules: Any,
) -> AgentReport:  # fmt: skip
    evaluation = AgentEvaluation(
        run_id="r", agent_id="ann", display_name="Ann", overall=overall, dimensions=dimensions, window_end=END,
        sample_size=sample_size,
    )  # fmt: skip
    least = Rules(min_coverage=rules.get("min_coverage", 1.0))
    comparison = compare("ann", dimensions, golden(before, claims) if before else None, least)
    return judge_agent(evaluation, comparison, GateRules(today=TODAY, **rules))


def kinds(report: AgentReport) -> list[str]:
    return [finding.kind for finding in report.findings]


def failed(count: int, of: int, score: float | None = 7.0, reason: str = "timeout") -> DimensionEvaluation:
    """Return a dimension of which so many judgments failed."""
    item = evaluated(
        score, {f"p{n}": 7.0 if n >= count else None for n in range(of)}, n_scored=of - count, n_expected=of
    )
    for number in range(count):
        item.propositions[f"p{number}"].failed = {reason: 1}
        item.propositions[f"p{number}"].detail = f"why {number}"
    return item


@pytest.mark.parametrize(
    ("judge", "named"),
    [
        ("openai:gpt-5", "openai"),
        ("ollama:qwen3:8b grouped by 4", "ollama"),
        ("anthropic:claude-haiku-5-5", "anthropic"),
        ("recorded", "anthropic"),
        ("a judge of a program's own", "anthropic"),
        (None, "anthropic"),
    ],
)
def test_the_advice_names_the_judge_that_judged(judge: str | None, named: str) -> None:
    evaluation = judged({"adherence": failed(1, 5)}).evaluation
    evaluation = evaluation.model_copy(update={"provenance": {"judge": judge} if judge else {}})
    comparison = compare("ann", evaluation.dimensions, None)
    found = next(
        item for item in judge_agent(evaluation, comparison, GateRules(today=TODAY)).findings if item.kind == "coverage"
    )
    assert found.command == record_command(evaluation)
    assert found.command.endswith(f" --judge {named} --record") and f"`{found.command}`" in found.remedy
    (said,) = facts_findings(FactsFound("ann", conversations=2, read=1), judge_to_ask(evaluation))
    assert said.command == f"persona-pipeline facts ann --judge {named} --record"


@pytest.mark.parametrize(
    ("overall", "code"), [(7.0, 0), (7.0 - 1e-10, 0), (7.0 - 1e-8, 1), (6.9, 1), (9.0, 0), (None, 0)]
)
def test_a_threshold_that_is_met_is_met(overall: float | None, code: int) -> None:
    report = judged({"adherence": evaluated(7.0, {"p": 7.0})}, {"adherence": 7.0}, overall=overall, threshold=7.0)
    assert exit_code_of(report.findings, GateRules()) == code
    assert kinds(report) == (["threshold"] if code else [])
    if code:
        assert report.findings[0].message == f"ann: overall {overall:.2f} is below 7"
        assert report.findings[0].agent_id == "ann"


def test_without_an_overall_score_a_threshold_cannot_be_told() -> None:
    dimensions = {"adherence": failed(5, 5, None), "fluency": evaluated(7.0)}
    (found,) = [item for item in judged(dimensions, overall=None, threshold=7.0).findings if item.kind == "threshold"]
    assert (found.exit_code, found.message) == (
        3,
        "ann: no overall score to compare with 7: adherence could not be judged in full",
    )
    assert "threshold" not in kinds(judged(dimensions, overall=None))


@pytest.mark.parametrize(
    ("changed", "kind", "says"),
    [
        ({}, "accepted", "; accepted until 2026-07-01: meant"),
        ({"until": date(2026, 7, 2)}, "accepted", "; accepted until 2026-07-02: meant"),
        ({"until": date(2026, 6, 30)}, "regression", "; it was accepted until 2026-06-30, which has passed"),
        ({"dimension": "fluency"}, "regression", ""),
        ({"agent": "bob"}, "regression", ""),
        ({"claim": "p"}, "regression", ""),
    ],
)
def test_a_drop_is_accepted_up_to_its_day(changed: dict[str, Any], kind: str, says: str) -> None:
    drops = [
        AcceptedDrop(**({"agent": "zoe", "dimension": "adherence", "until": TODAY, "why": "another's"})),
        AcceptedDrop(**({"agent": "ann", "dimension": "adherence", "until": TODAY, "why": "meant"} | changed)),
    ]
    plain = judged({"adherence": evaluated(5.0)}, {"adherence": 8.0}).findings[0]
    found = judged({"adherence": evaluated(5.0)}, {"adherence": 8.0}, accepted_drops=drops).findings[0]
    assert (found.kind, found.message) == (kind, plain.message + says)
    assert found.exit_code == (0 if kind == "accepted" else 1)


@pytest.mark.parametrize(
    ("changes", "allowed", "found"),
    [
        ([-1.5, -1.5, 0.0, 0.0], 1.0, ["2 of 4 agents dropped together (median change -0.8); judge not checked"]),
        ([-1.5, -1.5, 0.0, 0.0], 2.0, []),
        ([-1.5, 0.0, 0.0, 0.0], 1.0, []),
        ([-4.0, -4.0], 1.0, []),
        ([-4.0, -4.0, None, None], 1.0, []),
        ([-4.0, -4.0, -4.0], 1.0, ["3 of 3 agents dropped together (median change -4.0); judge not checked"]),
    ],
)
def test_half_of_the_agents_do_not_drift_on_one_day(
    changes: list[float | None], allowed: float, found: list[str]
) -> None:
    reports = [
        judged({"adherence": evaluated(8.0 + (change or 0.0))}, None if change is None else {"adherence": 8.0})
        for change in changes
    ]
    rules = Rules(regression_delta=allowed)
    assert [finding.message for finding in all_dropped(reports, rules)] == found


@pytest.mark.parametrize(("changed", "right", "code"), [(False, 18, 1), (True, 18, 3), (False, 9, 3)])
def test_a_judge_that_changed_or_failed_makes_a_drop_of_all_unclear(changed: bool, right: int, code: int) -> None:
    reports = [judged({"adherence": evaluated(4.0)}, {"adherence": 8.0}) for _ in range(3)]
    for report in reports:
        report.comparison.judge = JudgeCheck(asked=20, right=right, before=(20, 20), changed=changed)
    [found] = all_dropped(reports, Rules())
    assert (found.exit_code, "it changed: 20 of 20 before" in found.message) == (code, changed), found.message


@pytest.mark.parametrize(
    ("detectable", "drop", "found"),
    [([4.1, 9.5], None, True), ([4.0, 9.5], None, False), ([9.5], ShareDrop(1, 1, 0, 0, 0), False), ([], None, False)],
)
def test_an_agent_of_whom_nothing_could_be_found_is_not_in_character(
    detectable: list[float], drop: ShareDrop | None, found: bool
) -> None:
    report = judged({"adherence": evaluated(8.0)}, {"adherence": 8.0})
    rows = {
        f"d{n}": DimensionComparison(dimension=f"d{n}", status="ok", power=Power(detectable=least))
        for n, least in enumerate(detectable)
    }
    comparison = BaselineComparison(agent_id="ann", dimensions=rows, share_drop=drop)
    findings = [*power_findings(report.evaluation, comparison)]
    assert [(item.kind, item.exit_code) for item in findings] == ([("low_power", 3)] if found else [])


@pytest.mark.parametrize(("allowed", "found"), [(0.5, ["adherence 8.0 → 7.3"]), (1.0, []), (9.0, [])])
def test_a_stricter_rule_of_a_dimension_refuses_a_lower_baseline(allowed: float, found: list[str]) -> None:
    rules = Rules(by_dimension={"adherence": {"regression_delta": allowed}})
    old, new = (golden({"adherence": score, "fluency": score}) for score in (8.0, 7.3))
    assert lower(new, old, rules) == found


def test_what_is_said_of_labels_stays_where_a_report_is_of_some_dimensions() -> None:
    report = judged({name: evaluated(8.0, {"p": 8.0}) for name in ("adherence", "fluency")})
    report.findings += label_findings("ann", (0, 0))
    assert "calibration" in kinds(restricted(report, ["fluency"], GateRules(today=TODAY)))


def test_looser_rules_of_a_dimension_are_named() -> None:
    report = judged(
        {"adherence": evaluated(8.0)}, {"adherence": 8.0}, by_dimension={"fluency": {"regression_delta": 3.0}}
    )
    assert "ann: judged by looser rules: 3 points allowed in fluency" in [item.message for item in report.findings]


@pytest.mark.parametrize(("claim", "kind"), [(None, "accepted"), ("p", "accepted"), ("q", "proposition_drop")])
def test_one_claim_of_a_dimension_can_be_accepted(claim: str | None, kind: str) -> None:
    accepted = AcceptedDrop(agent="ann", dimension="adherence", claim=claim, until=TODAY, why="meant")
    report = judged(
        {"adherence": evaluated(7.9, {"p": 2.0, "o": 9.0})}, {"adherence": 8.0}, claims={"adherence": {"p": 8.0, "o": 9.0}},
        accepted_drops=[accepted],
    )  # fmt: skip
    assert (kinds(report)[0], report.findings[0].proposition_id) == (kind, "p")


@pytest.mark.parametrize(
    ("count", "of", "least", "found"),
    [
        (1, 19, 0.94, False),
        (1, 19, 0.95, True),
        (2, 19, 0.94, True),
        (1, 20, 0.99, True),
        (1, 5, 1.0, True),
        (0, 5, 1.0, False),
    ],
)
def test_coverage_is_named_with_what_failed(count: int, of: int, least: float, found: bool) -> None:
    report = judged({"adherence": failed(count, of)}, {"adherence": 7.0}, min_coverage=least)
    assert ("coverage" in kinds(report)) is found
    if found:
        message = next(item.message for item in report.findings if item.kind == "coverage")
        assert message.startswith(f"ann: adherence has {of - count} of {of} judgments (")
        assert message.endswith("p0" + ", p1" * (count > 1) + "); why 0")


@pytest.mark.parametrize(("reason", "remedy"), [("unrecorded", "record with `"), ("timeout", "ask again with `")])
def test_what_failed_is_asked_again_or_recorded(reason: str, remedy: str) -> None:
    report = judged({"adherence": failed(12, 12, None, reason)}, {"adherence": 7.0})
    (found,) = [item for item in report.findings if item.kind == "coverage"]
    assert found.remedy == f"{remedy}{found.command}`" and found.exit_code == 3

    assert found.message.endswith(": p0, p1, p2 and 9 more); why 0")


def test_a_baseline_without_anything_beside_it_is_never_green() -> None:
    no_claims = DimensionEvaluation(dimension="adherence")
    (found,) = judged({"adherence": no_claims}, {"adherence": 7.0}, overall=None).findings
    assert (found.kind, found.message) == ("coverage", "ann: adherence has a baseline and no claims any more")
    silent = evaluated(None, {"p": None}, n_scored=0, n_expected=0)
    (found,) = judged({"adherence": silent}, {"adherence": 7.0}, overall=None, sample_size=0).findings
    assert found.message.endswith("no message of it in the window that ends 2026-07-01 00:00 UTC")
    assert found.command == "persona-pipeline evaluate --agents ann --window 30d"
    silent.propositions["p"].detail = "too short"
    (found,) = judged({"adherence": silent}, {"adherence": 7.0}, overall=None).findings
    assert found.message.endswith("no score now: too short")
    assert kinds(judged({"adherence": silent}, overall=None)) == []


def test_a_dimension_without_a_baseline_is_named_once() -> None:
    report = judged({"adherence": evaluated(7.0), "fluency": evaluated(7.0)}, {"adherence": 7.0})
    (found,) = [item for item in report.findings if item.kind == "no_baseline"]
    assert (found.dimension, found.message) == ("fluency", "ann: fluency has no baseline")
    assert found.command == "persona-pipeline baseline --agents ann"


def test_too_few_judgments_in_all_fail_where_no_dimension_does() -> None:
    dimensions = {name: failed(1, 15) for name in ("adherence", "fluency")}
    report = judged(dimensions, {"adherence": 7.0, "fluency": 7.0}, min_coverage=0.94)
    (found,) = [item for item in report.findings if item.kind == "coverage"]
    assert found.message.startswith("ann: 28 of 30 judgments are scored (2 ")
    one = judged({"adherence": failed(1, 15)}, {"adherence": 7.0}, min_coverage=0.94)
    rules = GateRules(min_coverage=0.94)
    assert run_coverage([one], rules) == run_coverage([one, report], rules) == []
    (whole,) = run_coverage([one, one], rules)
    assert whole.message.startswith("the run: 28 of 30 judgments are scored (2 ") and whole.agent_id is None


@pytest.mark.parametrize(
    ("fail_on", "codes"),
    [(None, [1, 0, 3]), (["trend"], [0, 1, 0]), (["moved"], [0, 0, 0]), (["coverage"], [0, 0, 3]), ([], [0, 0, 0])],
)
def test_only_what_is_named_counts(fail_on: list[str] | None, codes: list[int]) -> None:
    findings = [Finding(kind=kind, message="x") for kind in ("regression", "trend", "coverage")]
    assert [item.exit_code for item in weighed(findings, fail_on)] == codes
    assert exit_code_of(findings, GateRules(only_fail_on=fail_on)) == (1 if 1 in codes else max(codes))


@pytest.mark.parametrize(
    ("dimensions", "sample_size", "why"),
    [
        ({"adherence": evaluated(7.0)}, 0, None),
        ({"adherence": evaluated(None, {"p": None})}, 0, "there is no message of these agents in the window"),
        ({"adherence": failed(2, 2, None, "unrecorded")}, 3, "no judgment of this window is recorded"),
        ({"adherence": failed(2, 2, None, "timeout")}, 3, "no dimension has a score"),
        ({}, 3, "no dimension has a score"),
    ],
)
def test_an_empty_run_is_never_a_pass(dimensions: dict, sample_size: int, why: str | None) -> None:
    report = judged(dimensions, overall=None, sample_size=sample_size)
    found = nothing_evaluated([report])
    assert [item.message for item in found] == ([f"nothing was evaluated: {why}"] if why else [])
    assert [item.message for item in nothing_evaluated([])] == ["nothing was evaluated: no dimension has a score"]


def test_rules_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="--threshold"):
        GateRules(threshold=-1.0)
    with pytest.raises(ConfigError, match="--fail-on does not know 'trnd'; did you mean 'trend'"):
        GateRules(fail_on=["trnd"])


def test_an_agent_without_a_persona_is_a_finding_each() -> None:
    assert [(item.agent_id, item.kind) for item in missing_agent_findings(["zoe", "kim"])] == [
        ("zoe", "missing_agent"), ("kim", "missing_agent")
    ]  # fmt: skip
    report = judged({"adherence": evaluated(7.0)})
    assert doubt_of(report.findings) is None
    report.findings.append(Finding(kind="judge_health", message="x"))
    assert doubt_of(report.findings) is not None
