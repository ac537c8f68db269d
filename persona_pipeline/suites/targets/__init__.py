"""Targets, which answer the tests. Similar kinds share a file."""

from persona_pipeline.suites.answering.base import Request, TargetError, TargetFields

__all__ = ["Request", "TargetError", "TargetFields"]
