"""Targets: who answers the tests. One kind a file."""

from persona_pipeline.suites.answering.base import Request, TargetError, TargetFields

__all__ = ["Request", "TargetError", "TargetFields"]
