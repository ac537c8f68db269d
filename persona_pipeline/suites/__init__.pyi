"""The public names of suites and where each stands."""

from .answering.base import Responses as Responses
from .answering.base import load_responses as load_responses
from .answering.base import read_responses as read_responses
from .answering.output import Output as Output
from .format.models import Suite as Suite
from .format.models import Test as Test
from .format.registry import register as register
from .format.suite import load_suite as load_suite
from .grading.base import Assert as Assert
from .grading.base import Context as Context
from .grading.base import Services as Services
from .grading.results import AssertResult as AssertResult
from .grading.results import Failure as Failure
from .grading.results import Grade as Grade
from .grading.results import SuiteResult as SuiteResult
from .grading.results import SuiteVerdict as SuiteVerdict
from .grading.results import TestResult as TestResult
from .grading.results import UngradedError as UngradedError
from .running.plan import RunOptions as RunOptions
from .running.suite_run import run_suite as run_suite
