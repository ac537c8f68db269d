"""The public names of the package and where each stands: read by type checkers, and by the package when a name is first used."""

from . import corrections as corrections
from . import testing as testing
from .api.comparing import (
    EvaluationComparison as EvaluationComparison,
)
from .api.comparing import (
    SuiteComparison as SuiteComparison,
)
from .api.comparing import (
    compare as compare,
)
from .api.evaluating import (
    Asking as Asking,
)
from .api.evaluating import (
    estimate as estimate,
)
from .api.evaluating import (
    evaluate as evaluate,
)
from .api.evaluating import (
    evaluate_async as evaluate_async,
)
from .api.evaluating import (
    load_baseline as load_baseline,
)
from .api.evaluating import (
    load_world as load_world,
)
from .api.evaluating import (
    open_gate as open_gate,
)
from .api.evaluating import (
    open_judge as open_judge,
)
from .api.evaluating import (
    take_baselines as take_baselines,
)
from .api.evaluating import (
    take_baselines_async as take_baselines_async,
)
from .api.results import Evaluation as Evaluation
from .api.results import UnscoredError as UnscoredError
from .api.suite_runs import (
    Running as Running,
)
from .api.suite_runs import (
    SuiteRun as SuiteRun,
)
from .api.suite_runs import (
    Test as Test,
)
from .api.suite_runs import (
    load_suite as load_suite,
)
from .api.suite_runs import (
    make_suite as make_suite,
)
from .api.suite_runs import (
    run_suite as run_suite,
)
from .api.suite_runs import (
    run_suite_async as run_suite_async,
)
from .base.errors import ConfigError as ConfigError
from .base.errors import PersonaError as PersonaError
from .base.errors import Problem as Problem
from .corrections.gate import ActionGate as ActionGate
from .corrections.interventions import Interventions as Interventions
from .corrections.records import GateDecision as GateDecision
from .corrections.statistics import correction_statistics as correction_statistics
from .defs.component import PersonaWorld as PersonaWorld
from .defs.component import build_persona_checks as build_persona_checks
from .guard.baselines.models import Baseline as Baseline
from .guard.report import (
    AgentEvaluation as AgentEvaluation,
)
from .guard.report import (
    AgentReport as AgentReport,
)
from .guard.report import (
    Finding as Finding,
)
from .guard.report import (
    RunReport as RunReport,
)
from .judging.verdict import (
    Evidence as Evidence,
)
from .judging.verdict import (
    Judge as Judge,
)
from .judging.verdict import (
    JudgeRequest as JudgeRequest,
)
from .judging.verdict import (
    Unscored as Unscored,
)
from .judging.verdict import (
    Verdict as Verdict,
)
from .scoring.results import DimensionEvaluation as DimensionEvaluation
from .scoring.results import PropositionResult as PropositionResult
from .suites.answering.base import (
    Responses as Responses,
)
from .suites.answering.base import (
    load_responses as load_responses,
)
from .suites.answering.base import (
    read_responses as read_responses,
)
from .suites.format.models import Suite as Suite
from .world.models import CorrectionSettings as CorrectionSettings
from .world.propositions.models import Dimension as Dimension
from .world.world import World as World

__version__: str
