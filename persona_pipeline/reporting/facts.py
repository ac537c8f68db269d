"""What a run cost and what it rests on, as pairs of a name and a short value."""

from typing import Any

from persona_pipeline.evaluation.report import RunReport
from persona_pipeline.reporting.view import format_usd
from persona_pipeline.scoring.results import UsageSummary

_HASH_LENGTH = 12
_LONGEST = 60


def usage_facts(usage: UsageSummary) -> list[tuple[str, str]]:
    """Return tokens and price; a run that called no judge says so in one line."""
    if not usage.calls:
        return [("Judge calls", "none: recorded or cached judgments cost nothing")]
    return [
        ("Judge calls", f"{usage.calls:,}"),
        ("Cost", format_usd(usage.usd)),
        ("Input tokens", f"{usage.input_tokens:,}"),
        ("Output tokens", f"{usage.output_tokens:,}"),
        ("Cached input tokens", f"{usage.cache_read_tokens:,} read, {usage.cache_creation_tokens:,} written"),
    ]


def provenance_facts(report: RunReport) -> list[tuple[str, str]]:
    """Return the run's provenance, keys in order, nested objects joined with dots; the windows that were evaluated come first."""
    windows = {
        f"{agent.evaluation.window_start:%Y-%m-%d %H:%M} to {agent.evaluation.window_end:%Y-%m-%d %H:%M} UTC"
        if agent.evaluation.window_start
        else f"everything up to {agent.evaluation.window_end:%Y-%m-%d %H:%M} UTC"
        for agent in report.agents.values()
    }
    evaluated = [("Evaluated window", window) for window in sorted(windows)]
    return evaluated + [(_spelled(name), value) for name, value in _flat(report.provenance)]


def agent_facts(provenance: dict[str, Any]) -> list[tuple[str, str]]:
    """Return one agent's provenance in the same form."""
    return [(_spelled(name), value) for name, value in _flat(provenance)]


def scalar_facts(statistics: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the numbers and short texts of a dimension's statistics; lists and long texts are left to the JSON report."""
    return [
        (_spelled(name), _scalar(round(value, 4) if isinstance(value, float) else value))
        for name, value in sorted(statistics.items())
        if isinstance(value, int | float | str) and len(str(value)) <= _LONGEST
    ]


def _flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [
            pair
            for key in sorted(value, key=str)
            for pair in _flat(value[key], f"{prefix}.{key}" if prefix else str(key))
        ]
    if isinstance(value, list | tuple | set):
        return [(prefix, ", ".join(_scalar(item) for item in value) or "none")]
    return [(prefix, _scalar(value))]


def _scalar(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    is_hash = len(text) == 64 and all(character in "0123456789abcdef" for character in text)
    return text[:_HASH_LENGTH] if is_hash else text


def _spelled(name: str) -> str:
    return (name[:1].upper() + name[1:]).replace("_", " ")
