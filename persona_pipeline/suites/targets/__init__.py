"""Targets: who answers the tests."""

from persona_pipeline.suites.targets.base import Request, Target, TargetError
from persona_pipeline.suites.targets.config import Targets, find_targets_file, load_targets

__all__ = ["Request", "Target", "TargetError", "Targets", "find_targets_file", "load_targets"]
