"""Labels of a run in the UI: agent, judge, window, commit, verdict."""

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

import dagster as dg

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import WINDOW as WINDOW_LENGTH
from persona_pipeline.base.settings import PACKAGE_PARENT
from persona_pipeline.defs.platform.dagster_internals import PARTITION
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.world.changes import ask_git

AGENT, JUDGE, WINDOW, COMMIT = "persona/agent", "persona/judge", "persona/window", "persona/commit"
# The verdict is on the run so that the list of runs shows it without a click.
REASON, VERDICT, ASKED = "persona/reason", "persona/verdict", "persona/asked"


def label_run(instance: dg.DagsterInstance, run: dg.DagsterRun, asked: Mapping[str, Any], place: Place) -> None:
    """Add the labels that a run does not have yet, from the options it ``asked`` for and the settings of its world."""
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


def request_tags(reason: str, *, agent_id: str | None = None, asked: str | None = None) -> Mapping[str, str]:
    """Return the tags of a requested run; ``asked``: a name under which only one run may be under way."""
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


@cache
def commit() -> str | None:
    """Return the short hash of the code that runs: PERSONA_COMMIT (an image sets it), CI's, else git's; None: unknown."""
    for name in ("PERSONA_COMMIT", "GITHUB_SHA"):
        if os.environ.get(name):
            return os.environ[name][:12]
    try:
        return ask_git(PACKAGE_PARENT, "rev-parse", "--short=12", "HEAD").decode("ascii").strip()
    except ConfigError:
        return None
