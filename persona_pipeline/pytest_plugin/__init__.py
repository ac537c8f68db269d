"""pytest plugin: claims about agents as tests, eval suites as tests. Loaded in every pytest run, so nothing heavy is imported here.

``@pytest.mark.persona("michael", dimension="adherence", threshold=7)`` fails a test if the agent scores less; the fixtures
``persona_world`` and ``persona_eval`` return the world and its evaluations; ``*.eval.yaml`` files become tests on request.
"""

import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from persona_pipeline.pytest_plugin.marks import Evaluations
    from persona_pipeline.world.world import World

RECORDED = "recorded"
SUITE_ENDINGS = (".eval.yaml", ".eval.yml")
UNSCORED, TERMS = "persona_unscored", "persona_terms"
_STATE: "pytest.StashKey[Evaluations]" = pytest.StashKey()
_MARKER = (
    "persona(*agents, dimension=None, claim=None, threshold=None, **options): "
    "the agents score at least the threshold (0-9) on the dimension or its claim; without a threshold, they have not dropped "
    "below their baselines. What cannot be scored is UNSCORED, which fails."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and the ini settings; the names of all begin with ``persona``."""
    group = parser.getgroup("persona", "persona-pipeline: agents in character")
    group.addoption("--persona-root", metavar="FOLDER", help="The world's folder, instead of persona_root.")
    group.addoption(
        "--persona-judge",
        metavar="JUDGE",
        help="Who judges: recorded (the default, asks nobody), or who serves a model: anthropic, openai, ollama and others.",
    )
    group.addoption(
        "--persona-record", action="store_true", help="Write the verdicts of a live judge to the world's recordings."
    )
    group.addoption("--persona-max-usd", type=float, metavar="USD", help="US dollars the judge may cost in all.")
    group.addoption(
        "--persona-suites", action="store_true", help="Collect *.eval.yaml files in every folder pytest looks into."
    )
    group.addoption("--persona-allow-code", action="store_true", help="Let suites run their own programs.")
    group.addoption("--persona-allow-targets", action="store_true", help="Let targets that suites name ask servers.")
    parser.addini("persona_root", "The world's folder, from the ini file's.", default="")
    parser.addini("persona_judge", "Who judges; see --persona-judge.", default=RECORDED)
    parser.addini("persona_suites", "Folders whose *.eval.yaml files are collected.", type="paths", default=[])
    parser.addini(
        "persona_options",
        "Options of evaluations, a line each, such as regression_delta = 1.5.",
        type="linelist",
        default=[],
    )
    parser.addini("persona_window", "Length of the window agents are evaluated on, such as 7d.", default="")
    parser.addini("persona_as_of", "Where the window ends (RFC 3339); by default at the newest message.", default="")
    parser.addini("persona_samples", "How often each claim is judged.", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", _MARKER)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name the judge in the header if it costs money."""
    judge = config.getoption("--persona-judge") or config.getini("persona_judge")
    return [] if judge == RECORDED else [f"persona: judged live by {judge}"]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a suite that is an argument itself, or is in a folder with collected suites."""
    if not file_path.name.endswith(SUITE_ENDINGS):
        return None
    config = parent.config
    folders: list[Path] = config.getini("persona_suites")
    if not (
        config.getoption("--persona-suites")
        or parent.session.isinitpath(file_path)
        or any(file_path.is_relative_to(folder) for folder in folders)
    ):
        return None
    from persona_pipeline.pytest_plugin.suites import SuiteFile

    return SuiteFile.from_parent(parent, path=file_path)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Check a test's marks before its body runs."""
    marks = list(item.iter_markers("persona"))
    if marks:
        from persona_pipeline.pytest_plugin.marks import check_marks

        item.user_properties += [(TERMS, text) for text in check_marks(evaluations_of(item.config), marks)]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Mark a test without a score as an error, not as a failure. It does not count as an expected failure either."""
    report = yield
    if call.excinfo is not None and _is_unscored(call.excinfo.value):
        setattr(report, UNSCORED, True)
        if hasattr(report, "wasxfail"):
            del report.wasxfail
            report.outcome = "failed"
            report.longrepr = str(call.excinfo.value)
    return report


def pytest_assertrepr_compare(op: str, left: Any, right: Any) -> list[str] | None:
    """Show the claims and quotes behind a score that is below the compared value, as the mark does."""
    results: Any = sys.modules.get("persona_pipeline.api.results")
    low, limit = (right, left) if op in ("<", "<=") else (left, right)
    if results is None or not isinstance(low, results.NamedScore) or not isinstance(limit, int | float) or low >= limit:
        return None
    from persona_pipeline.pytest_plugin.failures import low_text

    agent_id, dimension, claim = low.of
    return low_text(low.evaluation, agent_id, dimension, claim, float(limit)).splitlines()


def pytest_report_teststatus(report: Any) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """Count tests without a score separately."""
    if getattr(report, UNSCORED, False):
        return "unscored", "U", ("UNSCORED", {"yellow": True})
    return None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show tests without a score and the reasons, and the terms of verdicts that a plain pass would hide."""
    for report in (item for items in terminalreporter.stats.values() for item in items):
        for name, text in getattr(report, "user_properties", ()):
            if name == TERMS and report.when == "call":
                terminalreporter.write_line(f"persona: {report.nodeid}: {text}")
    reports = terminalreporter.stats.get("unscored", [])
    if not reports:
        return
    terminalreporter.write_sep("=", "UNSCORED")
    for report in reports:
        terminalreporter.write_sep("_", report.head_line, yellow=True, bold=True)
        terminalreporter.write_line(report.longreprtext)
    terminalreporter.write_sep("_", "unscored, which is no pass")
    for report in reports:
        terminalreporter.write_line(f"UNSCORED {report.nodeid}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close all open resources."""
    state = config.stash.get(_STATE, None)
    if state is not None:
        state.close()


def evaluations_of(config: pytest.Config) -> "Evaluations":
    """Return the evaluations of this pytest run; of each worker its own."""
    if _STATE not in config.stash:
        from persona_pipeline.pytest_plugin.marks import Evaluations

        config.stash[_STATE] = Evaluations(config)
    return config.stash[_STATE]


@pytest.fixture(scope="session")
def persona_world(pytestconfig: pytest.Config) -> "World":
    """The world of ``--persona-root``, ``persona_root`` or ``PERSONA_ROOT``."""
    return evaluations_of(pytestconfig).world


@pytest.fixture(scope="session")
def persona_eval(pytestconfig: pytest.Config) -> "Evaluations":
    """Evaluates agents: ``persona_eval("michael", dimensions="adherence")``; each is evaluated once."""
    return evaluations_of(pytestconfig)


def _is_unscored(error: BaseException) -> bool:
    # A run without evaluations cannot have raised it, and need not import it.
    results = sys.modules.get("persona_pipeline.api.results")
    if results is not None and isinstance(error, results.UnscoredError):
        return True
    failures = sys.modules.get("persona_pipeline.pytest_plugin.failures")
    return failures is not None and isinstance(error, failures.Unscored)
