"""The run as JSON, and back: what the command line prints, CI archives and other tools read."""

import json
import math
from typing import Any

from pydantic import ValidationError

from persona_pipeline.documents import strict_json
from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.evaluation.report import AgentReport, RunReport
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.propositions.dimensions import ALL_DIMENSIONS
from persona_pipeline.reporting.view import ReportView

MAX_BYTES = 32 * 1024 * 1024
_EVALUATION_FIELDS = tuple(AgentEvaluation.model_fields)


def to_json(report: RunReport) -> dict[str, Any]:
    """Return the run as plain JSON data in a stable order: agents and propositions by id, dimensions in their own order.

    Numbers that are not finite become null. ``from_json`` reads it back.
    """
    plain = report.model_dump(mode="json", include={"findings", "provenance", "statistics", "expenses"})
    data = {
        "exit_code": report.exit_code,
        "headline": ReportView(report).headline,
        "conclusion": report.conclusion.model_dump(mode="json"),
        "agents": {agent_id: _agent(agent) for agent_id, agent in sorted(report.agents.items())},
        "findings": plain["findings"],
        "provenance": _sorted(plain["provenance"]),
        "statistics": _sorted(plain["statistics"]),
        "usage": report.usage.model_dump(mode="json"),
        "expenses": plain["expenses"],
    }
    return _finite(data)


def json_text(report: RunReport) -> str:
    """Return ``to_json`` as indented ASCII text, so that no terminal or code page can spoil it."""
    return json.dumps(to_json(report), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def from_json(data: dict[str, Any]) -> RunReport:
    """Return the report that ``to_json`` wrote; anything else raises ``ConfigError``."""
    if not isinstance(data, dict) or not isinstance(data.get("agents"), dict):
        raise ConfigError("not a report: no object 'agents'; write one with `persona-pipeline evaluate --format json`")
    try:
        agents = {agent_id: _read_agent(agent) for agent_id, agent in data["agents"].items()}
        rest = {
            key: data[key] for key in ("findings", "exit_code", "provenance", "statistics", "expenses") if key in data
        }
        return RunReport(agents=agents, **rest)
    except ValidationError as error:
        raise ConfigError(
            [
                Problem(f"report: {'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}")
                for problem in error.errors(include_url=False, include_input=False)
            ]
        ) from None


def read_json(text: str, path: str = "report") -> RunReport:
    """Return the report in a JSON text of at most 32 MiB; raises ``ConfigError`` when it is none."""
    if len(text) > MAX_BYTES:
        raise ConfigError(Problem(f"larger than {MAX_BYTES // 1024 // 1024} MiB: not a report", path))
    try:
        data = strict_json(text)
    except ValueError as error:
        raise ConfigError(Problem(f"not JSON: {error}", path)) from None
    return from_json(data)


def _agent(agent: AgentReport) -> dict[str, Any]:
    evaluation, concluded = agent.evaluation.model_dump(mode="json"), agent.conclusions
    evaluation["provenance"] = _sorted(evaluation["provenance"])
    evaluation["dimensions"] = {
        name: evaluation["dimensions"][name] for name in _dimension_order(evaluation["dimensions"])
    }
    for dimension in evaluation["dimensions"].values():
        dimension["propositions"] = dict(sorted(dimension["propositions"].items()))
        dimension["statistics"] = _sorted(dimension["statistics"])
    comparison = agent.comparison.model_dump(mode="json")
    comparison["dimensions"] = {
        name: comparison["dimensions"][name] for name in _dimension_order(comparison["dimensions"])
    }
    return evaluation | {
        "conclusion": agent.conclusion.model_dump(mode="json"),
        "conclusions": {name: _sorted(concluded[name].model_dump(mode="json")) for name in evaluation["dimensions"]},
        "regressions": [item.model_dump(mode="json") for item in agent.comparison.regressions],
        "proposition_drops": [item.model_dump(mode="json") for item in agent.comparison.drops],
        "comparison": comparison,
        "findings": [finding.model_dump(mode="json") for finding in agent.findings],
    }


def _read_agent(data: Any) -> AgentReport:
    if not isinstance(data, dict):
        raise ConfigError("not a report: an agent is not an object")
    evaluation = {key: value for key, value in data.items() if key in _EVALUATION_FIELDS}
    return AgentReport.model_validate(
        {"evaluation": evaluation, "comparison": data.get("comparison"), "findings": data.get("findings", [])}
    )


def _dimension_order(names: dict[str, Any]) -> list[str]:
    return [name for name in ALL_DIMENSIONS if name in names] + sorted(set(names) - set(ALL_DIMENSIONS))


def _sorted(value: Any) -> Any:
    """Return plain data with the keys of every object in order, for a store may hand them back in another."""
    if isinstance(value, dict):
        return {str(key): _sorted(value[key]) for key in sorted(value, key=str)}
    return [_sorted(item) for item in value] if isinstance(value, list | tuple) else value


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
