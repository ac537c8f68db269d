"""What a run is labelled with in the UI: agent, judge, window, commit."""

import os
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import dagster as dg

from persona_pipeline.base.options import WINDOW as WINDOW_LENGTH
from persona_pipeline.base.settings import PACKAGE_PARENT
from persona_pipeline.defs.platform.dagster_internals import PARTITION
from persona_pipeline.defs.platform.place import Place

AGENT, JUDGE, WINDOW, COMMIT, REASON = "agent", "judge", "window", "commit", "reason"
VERDICT, ASKED = "persona/verdict", "persona/asked"
_GIT_SECONDS = 5

# Whether a run is one of a world's.
Ours = Callable[[dg.DagsterRun], bool]


def label_run(instance: dg.DagsterInstance, run: dg.DagsterRun, asked: Mapping[str, Any], place: Place) -> None:
    """Add the labels a run does not have yet, whoever started it, by the options it ``asked`` for and the settings of its world."""
    judge, as_of = asked.get("judge", "recorded"), asked.get("as_of")
    window = f"since {asked['since']}" if "since" in asked else asked.get("window", WINDOW_LENGTH)
    labels = {
        JUDGE: judge if judge == "recorded" else f"{judge}:{place.environment.judge_model}",
        WINDOW: f"{window} to {as_of}" if as_of else window,
        AGENT: run.tags.get(PARTITION),
        COMMIT: commit(),
    }
    missing = {key: value for key, value in labels.items() if value and key not in run.tags}
    if missing:
        instance.add_run_tags(run.run_id, missing)


def label_verdict(instance: dg.DagsterInstance, run_id: str, verdict: str) -> None:
    """Say on the run how it ended: the list of runs shows it without a click."""
    instance.add_run_tags(run_id, {VERDICT: verdict})


def request_tags(reason: str, *, agent_id: str | None = None, asked: str | None = None) -> Mapping[str, str]:
    """Return the tags a sensor or a schedule requests a run with; ``asked``: what is asked for one at a time."""
    found = {REASON: reason, AGENT: agent_id, ASKED: asked}
    return {name: text for name, text in found.items() if text}


_UNDER_WAY = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
]


def is_under_way(instance: dg.DagsterInstance, asked: str) -> bool:
    """Return whether a run waits or is executed that was asked for one at a time."""
    return bool(instance.get_runs(dg.RunsFilter(tags={ASKED: asked}, statuses=_UNDER_WAY), limit=1))


def runs_of(definitions: dg.Definitions) -> Ours:
    """Return what tells a run of these jobs, or of nothing but these assets, from others of the instance."""
    jobs = {job.name for job in definitions.jobs or ()}
    # A schedule of an asset has a job of its own.
    jobs |= {item.job_name for item in definitions.schedules or () if isinstance(item, dg.ScheduleDefinition)}
    keys: set[dg.AssetKey] = set()
    for asset in definitions.assets or ():
        if isinstance(asset, dg.AssetsDefinition):
            keys |= asset.keys

    def ours(run: dg.DagsterRun) -> bool:
        about = run.asset_selection or {check.asset_key for check in run.asset_check_selection or ()}
        return run.job_name in jobs or (bool(about) and keys.issuperset(about))

    return ours


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
