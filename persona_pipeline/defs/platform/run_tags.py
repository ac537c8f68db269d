"""What a run is labelled with in the UI: agent, judge, window, commit."""

import os
import subprocess
from collections.abc import Mapping
from functools import cache

import dagster as dg

from persona_pipeline.defs.platform.dagster_internals import PARTITION, add_run_tags
from persona_pipeline.settings import PACKAGE_PARENT, get_settings

AGENT, JUDGE, WINDOW, COMMIT, REASON = "agent", "judge", "window", "commit", "reason"
LOOK = "persona/look"
_GIT_SECONDS = 5


def label_run(instance: dg.DagsterInstance, run: dg.DagsterRun, *, judge: str, window: str, as_of: str = "") -> None:
    """Add the labels a run does not have yet, whoever started it."""
    labels = {
        JUDGE: judge if judge == "recorded" else f"{judge}:{get_settings().judge_model}",
        WINDOW: f"{window} to {as_of}" if as_of else window,
        AGENT: run.tags.get(PARTITION),
        COMMIT: commit(),
    }
    missing = {key: value for key, value in labels.items() if value and key not in run.tags}
    if missing:
        add_run_tags(instance, run.run_id, missing)


def request_tags(reason: str, *, agent_id: str | None = None, look: int | None = None) -> Mapping[str, str]:
    """Return the tags a sensor (with the number of its look) or a schedule requests a run with."""
    found = {REASON: reason, AGENT: agent_id, LOOK: str(look) if look else None}
    return {key: value for key, value in found.items() if value}


@cache
def commit() -> str | None:
    """Return the short hash of the code that runs: PERSONA_COMMIT (an image sets it), CI's, else git's; None: unknown."""
    for name in ("PERSONA_COMMIT", "GITHUB_SHA"):
        if os.environ.get(name):
            return os.environ[name][:12]
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(
            command, cwd=PACKAGE_PARENT, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
