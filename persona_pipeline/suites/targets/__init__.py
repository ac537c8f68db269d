"""Targets: who answers the tests."""

from persona_pipeline.suites.targets.base import Request, TargetError
from persona_pipeline.suites.targets.config import Targets, find_targets_file, load_targets
from persona_pipeline.suites.targets.fields import TargetFields
from persona_pipeline.suites.targets.grants import Grants, grants_for

__all__ = [
    "Grants",
    "Request",
    "TargetError",
    "TargetFields",
    "Targets",
    "find_targets_file",
    "grants_for",
    "load_targets",
]
