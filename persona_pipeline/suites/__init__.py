"""Eval suites: tests in YAML, answered by targets, graded by asserts.

    suite = load_suite("suites/assistant.eval.yaml")
    result = run_suite(suite, responses=load_responses("answers.json"))

A new assert type is a subclass of ``Assert`` with ``grade``, registered under the entry point group ``persona_pipeline.asserts``.
"""

from persona_pipeline.suites.asserts.base import Assert
from persona_pipeline.suites.context import Context, Services
from persona_pipeline.suites.grades import AssertResult, Failure, Grade, SuiteVerdict, UngradedError
from persona_pipeline.suites.loading.suite import load_suite
from persona_pipeline.suites.models import Suite, Test
from persona_pipeline.suites.output import Output
from persona_pipeline.suites.registry import register
from persona_pipeline.suites.responses import Responses, load_responses, read_responses
from persona_pipeline.suites.results import SuiteResult, TestResult
from persona_pipeline.suites.running import RunOptions, run_suite
from persona_pipeline.suites.whole import run_suite_file, suite_files

__all__ = [
    "Assert",
    "AssertResult",
    "Context",
    "Failure",
    "Grade",
    "Output",
    "Responses",
    "RunOptions",
    "Services",
    "Suite",
    "SuiteResult",
    "SuiteVerdict",
    "Test",
    "TestResult",
    "UngradedError",
    "load_responses",
    "load_suite",
    "read_responses",
    "register",
    "run_suite",
    "run_suite_file",
    "suite_files",
]
