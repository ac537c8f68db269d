"""A verdict carries its terms: agents left out, looser rules, accepted drops, and what can fail the run, on every surface."""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

import persona_pipeline as pp
from persona_pipeline.base.settings import get_settings
from persona_pipeline.defs.agents.verdicts import agent_line, headline, overview, verdict
from persona_pipeline.defs.cohort import RegressionConfig
from persona_pipeline.evaluation.history import report_of
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.evaluation.run import replayed
from persona_pipeline.evaluation.snapshot import load_replay, save_replay
from persona_pipeline.guard.gate import GateRules, counted
from persona_pipeline.guard.report import RunReport
from persona_pipeline.pytest_plugin.marks import check_marks
from persona_pipeline.reporting.notify import report_notice
from persona_pipeline.reporting.render import from_json, print_report, render, to_json
from persona_pipeline.reporting.view import ReportView
from tests.support.command_line import Cli

LOOSE = {"regression_delta": 9.0, "proposition_delta": 9.0}
ACCEPTED = {"accepted_drops": [{"agent": "michael", "dimension": d, "until": "2999-01-01", "why": "he is retired"}
                               for d in ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")]}  # fmt: skip
OTHERS = ["dwight", "jim", "pam"]


@dataclass(frozen=True)
class Terms:
    """What is asked, and what the headline says then.

    ``file``: of ``persona.yaml``; ``environment``: of the process; ``accepted``: drops are named with this rule.
    """

    headline: str
    asked: Mapping[str, Any] = field(default_factory=dict)
    file: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    code: int = 0
    accepted: str = ""


CASES = {
    "loosened by option": Terms(
        "3 in character, 1 accepted; 9 points allowed; 9 points a claim allowed", LOOSE, accepted="regression_delta 9"
    ),
    "loosened by persona.yaml": Terms(
        "3 in character, 1 accepted; 9 points allowed; 9 points a claim allowed", file=LOOSE, accepted="regression_delta 9"
    ),
    "loosened by the environment": Terms(
        "3 in character, 1 drifted; 9 points may be chance", environment={"UNDECIDED_DELTA": "9"}, code=1
    ),
    "coverage": Terms("3 in character, 1 drifted; 50% of judgments are enough", {"min_coverage": 0.5}, code=1),
    "a threshold of the file is lowered": Terms(
        "3 in character, 1 drifted; threshold 0 instead of 7", {"threshold": 0.0}, {"threshold": 7.0}, code=1
    ),
    "left out by persona.yaml": Terms("3 of 4 agents in character; michael left out", file={"leave_out": ["michael"]}),
    "left out by --agents": Terms("3 of 4 agents in character; michael left out", {"agents": OTHERS}),
    "not all dimensions are asked for": Terms(
        "3 in character, 1 drifted; adherence, consistency, convergence, ideas quantity not judged",
        {"dimensions": ["fluency"]},
        code=1,
    ),
    "only some findings fail": Terms(
        "3 in character, 1 drifted; exit code 0, because only coverage can fail it", {"only_fail_on": ["coverage"]}
    ),
    "no finding fails": Terms(
        "3 in character, 1 drifted; exit code 0, because only nothing can fail it", file={"only_fail_on": []}
    ),
    "a warning fails too": Terms("3 in character, 1 drifted", {"fail_on": ["injection"]}, code=1),
    "an older persona.yaml without findings to fail on": Terms("3 in character, 1 drifted", file={"fail_on": []}, code=1),
    "an accepted drop": Terms(
        "3 in character, 1 accepted; drops of michael may be accepted", file=ACCEPTED, accepted="he is retired"
    ),
}  # fmt: skip


def evaluated(root: Path, terms: Terms, monkeypatch: pytest.MonkeyPatch, **asked: Any) -> pp.Evaluation:
    if terms.file:
        (root / "persona.yaml").write_text(yaml.safe_dump(dict(terms.file)), encoding="utf-8")
    for name, value in terms.environment.items():
        monkeypatch.setenv(f"PERSONA_{name}", value)
    get_settings.cache_clear()
    return pp.evaluate(pp.load_world(root), **{**terms.asked, **asked})


def shown(report: RunReport) -> str:
    stream = io.StringIO()
    print_report(report, stream)
    return " ".join(stream.getvalue().split())


def junit(report: RunReport) -> str:
    return render(report, "junit")


def dagster(report: RunReport) -> str:
    lines = [agent_line(agent, counted(report.terms)) for agent in report.agents.values()]
    return verdict(lines, report)


# What each surface shows of a run: with its whole headline, or the terms alone.
HEADLINES: Mapping[str, Callable[[RunReport], str]] = {
    "terminal": shown,
    "JSON": lambda report: to_json(report)["headline"],
    "HTML": lambda report: render(report, "html"),
    "pull request": lambda report: render(report, "markdown"),
    "read again": lambda report: ReportView(from_json(json.loads(json.dumps(to_json(report))))).headline,
}
TERMS: Mapping[str, Callable[[RunReport], str]] = {"JUnit": junit, "Dagster's run tag": dagster}


@pytest.mark.parametrize("case", CASES)
def test_every_surface_states_the_terms(case: str, sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terms = CASES[case]
    run = evaluated(sample_root, terms, monkeypatch)
    report = run.report
    assert (report.exit_code, ReportView(report).headline) == (terms.code, terms.headline)
    for surface, show in HEADLINES.items():
        assert terms.headline in show(report), surface
    assert terms.headline in run._repr_html_() and terms.headline in repr(run), "notebook"
    notice = report_notice(report)
    assert notice is None or terms.headline in notice.title, "alert"
    clauses = ReportView(report).terms
    for surface, show in TERMS.items():
        for clause in clauses:
            assert clause in show(report), surface
    whole = json.dumps(to_json(report)["terms"])
    assert ("michael" in json.loads(whole)["left_out"]) is ("left out" in terms.headline)
    assert len(report.terms.baselines) == len(report.agents)
    if terms.accepted:
        assert terms.accepted in whole and report.terms.accepted
        for surface in (*HEADLINES, *TERMS):
            told = {**HEADLINES, **TERMS}[surface](report)
            assert "accepted" in told, surface
        assert 'name="verdict" value="accepted"' in junit(report)
        assert "accepted: michael" in dagster(report) and "1 accepted" in headline(
            [agent_line(agent) for agent in report.agents.values()]
        )
        assert "9 points allowed" in overview([agent_line(report.agents["michael"])]) or terms.file == ACCEPTED
    stored = WorldReader(run.world).reports([*report.agents]) if run.world else {}
    kept = ReportView(report_of(stored, GateRules())).headline
    for rule in report.terms.looser:
        assert rule.text in kept, "a saved run keeps its rules"


def test_a_snapshot_keeps_its_terms(sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terms = CASES["loosened by option"]
    run = evaluated(sample_root, terms, monkeypatch, agents=["michael"])
    assert run.replay is not None
    save_replay(tmp_path / "run.json", run.replay())
    again = replayed(load_replay(tmp_path / "run.json")).report
    assert ReportView(again).headline == ReportView(run.report).headline
    assert (
        ReportView(again).headline
        == "1 accepted; dwight, jim, pam left out; 9 points allowed; 9 points a claim allowed"
    )


def test_a_mark_that_passes_by_looser_rules_says_so(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = evaluated(sample_root, CASES["loosened by option"], monkeypatch, agents=["michael"])

    def evaluations(*agents: str, **asked: Any) -> pp.Evaluation:
        return found

    said = check_marks(evaluations, [pytest.mark.persona("michael").mark])  # pyright: ignore[reportArgumentType]
    assert said[:2] == ["9 points allowed", "9 points a claim allowed"] and "accepted by regression_delta 9" in said[2]


def test_the_input_of_the_action_adds_and_restricts(cli: Cli) -> None:
    assert RegressionConfig(only_fail_on=[]).given == {"only_fail_on": []}  # pyright: ignore[reportCallIssue]
    codes = {
        option: cli("evaluate", "--agents", "michael", *option).returncode
        for option in [("--fail-on", "injection"), ("--fail-on", "none"), ("--only-fail-on", "none")]
    }
    assert codes == {("--fail-on", "injection"): 1, ("--fail-on", "none"): 1, ("--only-fail-on", "none"): 0}
