"""Eval suites: tests in YAML, answered by targets, graded by asserts.

    suite = load_suite("suites/assistant.eval.yaml")
    result = run_suite(suite, responses=load_responses("answers.json"))

A new assert type is a subclass of ``Assert`` with ``grade``, registered under the entry point group ``persona_pipeline.asserts``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
