"""Eval suites: tests in YAML, answered by targets, graded by asserts.

    suite = load_suite("suites/assistant.eval.yaml")
    result = run_suite(suite, responses=load_responses("answers.json"))

A new assert type is a subclass of ``Assert`` with ``grade``, registered under the entry point group ``persona_pipeline.asserts``.
"""

from persona_pipeline.suites.answering.base import Responses, load_responses, read_responses
from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.asserts.registry import register
from persona_pipeline.suites.format.models import Suite, Test
from persona_pipeline.suites.grading.base import Assert, Context, Services
from persona_pipeline.suites.grading.results import (
    AssertResult,
    Failure,
    Grade,
    SuiteResult,
    SuiteVerdict,
    TestResult,
    UngradedError,
)
from persona_pipeline.suites.running.opening import load_suite
from persona_pipeline.suites.running.plan import RunOptions
from persona_pipeline.suites.running.suite_run import run_suite

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
]
