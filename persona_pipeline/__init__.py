"""Continuous evaluation for LLM personas.

    import persona_pipeline as pp

    world = pp.load_world("my-world")
    result = pp.evaluate(world)
    result.to_frame()

Every name below is public and stays; each brings in its own part of the package only when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from persona_pipeline.version import __version__ as __version__

if TYPE_CHECKING:
    from persona_pipeline.api.comparing import EvaluationComparison, SuiteComparison, compare
    from persona_pipeline.api.evaluating import (
        Asking,
        estimate,
        evaluate,
        evaluate_async,
        load_baseline,
        load_world,
        open_gate,
        open_judge,
        take_baselines,
        take_baselines_async,
    )
    from persona_pipeline.api.results import Evaluation, UnscoredError
    from persona_pipeline.api.suite_runs import (
        Running,
        SuiteRun,
        Test,
        load_suite,
        make_suite,
        run_suite,
        run_suite_async,
    )
    from persona_pipeline.base.errors import ConfigError, PersonaError, Problem
    from persona_pipeline.corrections.decision import GateDecision
    from persona_pipeline.corrections.gate import ActionGate
    from persona_pipeline.corrections.interventions import Interventions
    from persona_pipeline.corrections.statistics import correction_statistics
    from persona_pipeline.defs.component import PersonaWorld, build_persona_checks
    from persona_pipeline.guard.baselines.models import Baseline
    from persona_pipeline.guard.report import AgentEvaluation, AgentReport, Finding, RunReport
    from persona_pipeline.judging.verdict import Evidence, Judge, JudgeRequest, Unscored, Verdict
    from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult
    from persona_pipeline.suites.answering.base import Responses, load_responses, read_responses
    from persona_pipeline.suites.format.models import Suite
    from persona_pipeline.world.models import CorrectionSettings
    from persona_pipeline.world.propositions.models import Dimension
    from persona_pipeline.world.world import World

__all__ = [
    "ActionGate",
    "AgentEvaluation",
    "AgentReport",
    "Asking",
    "Baseline",
    "ConfigError",
    "CorrectionSettings",
    "Dimension",
    "DimensionEvaluation",
    "Evaluation",
    "EvaluationComparison",
    "Evidence",
    "Finding",
    "GateDecision",
    "Interventions",
    "Judge",
    "JudgeRequest",
    "PersonaError",
    "PersonaWorld",
    "Problem",
    "PropositionResult",
    "Responses",
    "RunReport",
    "Running",
    "Suite",
    "SuiteComparison",
    "SuiteRun",
    "Test",
    "Unscored",
    "UnscoredError",
    "Verdict",
    "World",
    "build_persona_checks",
    "compare",
    "correction_statistics",
    "estimate",
    "evaluate",
    "evaluate_async",
    "load_baseline",
    "load_responses",
    "load_suite",
    "load_world",
    "make_suite",
    "open_gate",
    "open_judge",
    "read_responses",
    "run_suite",
    "run_suite_async",
    "take_baselines",
    "take_baselines_async",
]

_MODULES = {
    "persona_pipeline.api.comparing": ("EvaluationComparison", "SuiteComparison", "compare"),
    "persona_pipeline.api.evaluating": (
        "Asking",
        "estimate",
        "evaluate",
        "evaluate_async",
        "load_baseline",
        "load_world",
        "open_gate",
        "open_judge",
        "take_baselines",
        "take_baselines_async",
    ),
    "persona_pipeline.api.results": ("Evaluation", "UnscoredError"),
    "persona_pipeline.api.suite_runs": (
        "Running",
        "SuiteRun",
        "Test",
        "load_suite",
        "make_suite",
        "run_suite",
        "run_suite_async",
    ),
    "persona_pipeline.guard.baselines.models": ("Baseline",),
    "persona_pipeline.corrections.decision": ("GateDecision",),
    "persona_pipeline.corrections.gate": ("ActionGate",),
    "persona_pipeline.corrections.interventions": ("Interventions",),
    "persona_pipeline.corrections.statistics": ("correction_statistics",),
    "persona_pipeline.defs.component": ("PersonaWorld", "build_persona_checks"),
    "persona_pipeline.base.errors": ("ConfigError", "PersonaError", "Problem"),
    "persona_pipeline.guard.report": ("AgentEvaluation", "AgentReport", "Finding", "RunReport"),
    "persona_pipeline.judging.verdict": ("Evidence", "Judge", "JudgeRequest", "Unscored", "Verdict"),
    "persona_pipeline.world.propositions.models": ("Dimension",),
    "persona_pipeline.scoring.results": ("DimensionEvaluation", "PropositionResult"),
    "persona_pipeline.suites.format.models": ("Suite",),
    "persona_pipeline.suites.answering.base": ("Responses", "load_responses", "read_responses"),
    "persona_pipeline.world.models": ("CorrectionSettings",),
    "persona_pipeline.world.world": ("World",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}
# `pp.testing.WorldBuilder` and `pp.corrections` need no import of their own.
_PACKAGES = ("corrections", "testing")


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
