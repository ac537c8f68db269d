"""Checks on somebody's own asset: do the agents still sound like themselves in what it holds?"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import dagster as dg

from persona_pipeline.base.errors import ConfigError, did_you_mean
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.defs import metadata
from persona_pipeline.defs.agents.verdicts import AgentVerdict, agent_line, first_lines
from persona_pipeline.defs.component.persona_world import world_settings
from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import known_agents, logged_progress, world_in_force
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.report import AgentReport
from persona_pipeline.judging.open import JudgeOptions, open_judge
from persona_pipeline.judging.providers.base import RECORDED
from persona_pipeline.world.world import bring_rows

MOST_LINES = 5


def build_persona_checks(
    *,
    asset: str | Sequence[str] | dg.AssetKey | dg.AssetsDefinition,
    world: str | Path,
    agents: Sequence[str] | None = None,
    returns: Literal["rows", "nothing"] = "rows",
    columns: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    blocking: bool = False,
) -> dg.AssetChecksDefinition:
    """Return a check an agent, ``persona_<agent>``, on an asset: it fails where the agent regressed or was not judged in full.

    Args:
        asset: the asset, or its key.
        world: folder of the world whose personas, claims, baselines and recordings count.
        agents: whom to check; None: everybody with a persona file now.
        returns: ``rows``: the asset is a frame or a list of records, a message each, which are first brought into the world's
            store; ``nothing``: it writes them there itself, or to the world's ``messages`` folder.
        columns: what the rows call a field of a message, where they call it something else.
        settings: the world's, as of the component: ``judge``, ``window``, ``max_usd``, ``database_url`` and so on.
        blocking: what is downstream of the asset waits for the check, and does not run where it fails.

    Raises:
        ConfigError: there is no world in the folder, an agent has no persona file, or a setting cannot be.
    """
    root = Path(world).expanduser().resolve()
    if not (root / "personas").is_dir():
        raise ConfigError(f"{root} is no world: it has no personas folder; run persona-pipeline init")
    known = known_agents(root)
    chosen = list(known if agents is None else agents)
    if wrong := [name for name in chosen if name not in known]:
        raise ConfigError(f"{wrong[0]!r} has no persona file in {root}{did_you_mean(wrong[0], known)}")
    place = Place((), **world_settings(root, settings or {}))
    key = asset.key if isinstance(asset, dg.AssetsDefinition) else dg.AssetKey.from_coercible(asset)
    names = {_check_name(agent_id): agent_id for agent_id in chosen}
    if alike := set(chosen) - set(names.values()):
        raise ConfigError(f"the check of {min(alike)!r} has the name of another agent's; check them apart")

    def evaluate(asked: Sequence[str], rows: Any) -> Mapping[str, tuple[AgentVerdict, AgentReport]]:
        with world_in_force() as opened:
            if returns == "rows":
                bring_rows(opened, rows, source=key.to_user_string(), columns=columns)
            request = opened.settled(EvaluationRequest(**{**place.asked, "agents": asked}))
            judge = open_judge(request.judge or RECORDED, opened, JudgeOptions.of(request, logged_progress()))
            found = run_evaluation(opened, judge, request).report.agents
            return {name: (agent_line(report, request.fail_on), report) for name, report in found.items()}

    @dg.multi_asset_check(
        name=f"persona_checks_of_{key.to_python_identifier()}",
        specs=[
            dg.AssetCheckSpec(
                name,
                asset=key,
                blocking=blocking,
                description=f"{agent_id} still sounds like itself: nothing fell below its baseline, and everything was judged.",
            )
            for name, agent_id in names.items()
        ],
        can_subset=True,
        ins={"rows": dg.AssetIn(key)} if returns == "rows" else None,
    )
    @place.bound
    def checks(context: dg.AssetCheckExecutionContext, **inputs: Any) -> Iterator[dg.AssetCheckResult]:
        asked = [names[check.name] for check in context.selected_asset_check_keys]
        with known_failures():
            reports = evaluate(sorted(asked), inputs.get("rows"))
        for agent_id in asked:
            yield _result(key, *reports[agent_id])

    return checks


def _check_name(agent_id: str) -> str:
    return f"persona_{re.sub(r'[^A-Za-z0-9_]', '_', agent_id)}"


def _result(key: dg.AssetKey, line: AgentVerdict, report: AgentReport) -> dg.AssetCheckResult:
    wrong = line.wrong
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=_check_name(report.evaluation.agent_id),
        passed=not wrong,
        severity=dg.AssetCheckSeverity.ERROR,
        description="\n".join(first_lines(wrong, MOST_LINES)) or "Nothing is wrong.",
        metadata={
            **metadata.conclusion_metadata(report.conclusion),
            "found": len(wrong),
            "comparison": metadata.comparison_table(report.comparison),
        },
    )
