"""Targets: who answers the tests. Kinds that are alike share a file."""

from persona_pipeline.suites.answering.base import Request, TargetError, TargetFields

__all__ = ["Request", "TargetError", "TargetFields"]
