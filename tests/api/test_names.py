"""The front door: the names it has, what they weigh, and that each of them is typed."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import persona_pipeline as pp
from tests.support.waiting import PATIENCE

PROJECT = Path(__file__).parents[2]
NAMES = re.findall(
    r"\w+",
    """
    ActionGate AgentEvaluation AgentReport Asking Baseline ConfigError CorrectionSettings Dimension DimensionEvaluation
    Evaluation EvaluationComparison Evidence Finding GateDecision Interventions Judge JudgeRequest PersonaError
    PersonaWorld Problem PropositionResult Responses RunReport Running Suite SuiteComparison SuiteRun Test Unscored UnscoredError
    Verdict World build_persona_checks compare correction_statistics estimate evaluate evaluate_async load_baseline load_responses
    load_suite load_world make_suite open_gate open_judge read_responses run_suite run_suite_async take_baselines
    take_baselines_async
    """,
)


def test_these_are_the_public_names() -> None:
    assert pp.__all__ == sorted([*NAMES, "corrections", "testing"])
    assert {name: getattr(pp, name).__name__ for name in NAMES} == {name: name for name in NAMES}
    assert pp.testing.__all__ and pp.corrections.__all__


def test_every_public_name_says_what_it_is() -> None:
    # What is inherited says something of the parent.
    assert [name for name in NAMES if not (vars(getattr(pp, name)).get("__doc__") or getattr(pp, name).__doc__)] == []
    assert [name for name in pp.testing.__all__ if not getattr(pp.testing, name).__doc__] == []


def test_every_public_call_is_typed() -> None:
    calls = [getattr(pp, name) for name in (*NAMES, *pp.testing.__all__) if inspect.isfunction(getattr(pp, name, None))]
    kinds = (pp.Evaluation, pp.EvaluationComparison, pp.SuiteComparison, pp.SuiteRun, pp.testing.WorldBuilder)
    calls += [
        call for kind in kinds for name, call in vars(kind).items() if inspect.isfunction(call) and name[0] != "_"
    ]
    assert len(calls) > 20
    for call in calls:
        signature = inspect.signature(call)
        told = [
            signature.return_annotation,
            *(item.annotation for name, item in signature.parameters.items() if name != "self"),
        ]
        assert inspect.Signature.empty not in told, call
    assert (Path(pp.__file__).parent / "py.typed").is_file()


def test_the_page_names_them_all() -> None:
    page = (PROJECT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    told = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", page))))
    assert {*NAMES, *pp.testing.__all__} - told == set()


def test_the_pages_name_what_can_be_asked() -> None:
    """Most keywords are options of the command line, and named on that page alone."""
    pages = [
        (PROJECT / "docs/reference" / name).read_text(encoding="utf-8") for name in ("python.md", "command-line.md")
    ]
    told = {name.replace("-", "_") for page in pages for name in re.findall(r"`(?:--)?([\w-]+)", page)}
    assert {*pp.Asking.__annotations__, *pp.Running.__annotations__} - told == set()


def test_importing_it_imports_nothing_else() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import persona_pipeline, persona_pipeline.pytest_plugin;"
        "print(*sorted(name for name in set(sys.modules) - before if name.split('.')[0] not in sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    # A run of pytest that has nothing to do with agents pays for these four.
    own = ["persona_pipeline", "persona_pipeline.pytest_plugin", "persona_pipeline.version"]
    assert done.stdout.split() == ["lazy_loader", *own]


def test_a_name_that_is_not_there_is_named() -> None:
    try:
        pp.evalute  # type: ignore[attr-defined]  # noqa: B018
    except AttributeError as error:
        assert "evalute" in str(error)
    else:
        raise AssertionError("a misspelled name is there")
