"""Asking an endpoint what it can do: its model, structured output, caching. Two or three small calls at most."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from persona_pipeline.judging.anthropic import AnthropicJudge
from persona_pipeline.judging.backend import AnthropicBackend
from persona_pipeline.judging.connection import connect
from persona_pipeline.judging.options import AnthropicOptions
from persona_pipeline.judging.request import UNKNOWN_MODEL, traits_of
from persona_pipeline.judging.verdict import JudgeRequest, Unscored, Verdict
from persona_pipeline.world.trajectory import Entry, Trajectory

# Seconds for which the server's limits are waited for.
_PATIENCE = 1.0
_RETIRES_SOON = timedelta(days=60)
_LINE = "The quarterly report is on your desk, and I watered the fern while I was there."


class Level(StrEnum):
    """How a finding is to be taken. Only an error makes ``doctor`` fail."""

    OK = "ok"
    NOTE = "note"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One thing looked at: what was found, and for anything but ``ok`` what to do."""

    name: str
    level: Level
    said: str
    remedy: str = ""


async def probe(options: AnthropicOptions) -> list[Finding]:
    """Return what the endpoint answers, in the order it was asked; the first error ends it."""
    # A server of one's own may be slow and still be right.
    deadline = min(options.deadline, 30.0) if options.is_anthropic else options.deadline
    options = replace(options, max_retries=1, deadline=deadline, patience=min(options.patience, _PATIENCE))
    model = await _model(options)
    if model.level is Level.ERROR:
        return [model]
    backend = AnthropicBackend(options)
    judge = AnthropicJudge(backend, mechanism="doctor")
    traits = traits_of(options.model)
    if traits is UNKNOWN_MODEL:
        # Nobody knows what it caches, and a long transcript may not fit.
        (verdict,) = await judge.judge([_request("first", _transcript(200))])
        return [model, _structured(verdict, backend)]
    shown = _transcript(traits.cache_minimum)
    first, second = await judge.judge([_request("first", shown), _request("second", shown)])
    findings = [model, _structured(first, backend)]
    if first.score is not None or first.unscored in (Unscored.NOT_APPLICABLE, Unscored.NO_EVIDENCE):
        findings.append(_caching(second, options))
    return findings


async def _model(options: AnthropicOptions) -> Finding:
    sdk: Any = options.provider.sdk()
    name, provider = options.model, options.provider
    silent = Finding("model", Level.NOTE, f"{options.endpoint} does not describe its models", "nothing to be done")
    if not provider.describes_models:
        return silent
    try:
        async with connect(options) as client:
            found = await client.models.retrieve(name)
    except sdk.APIConnectionError as error:
        cause = type(error.__cause__ or error).__name__
        return Finding(
            "endpoint",
            Level.ERROR,
            f"{options.endpoint} cannot be reached ({cause})",
            f"check the network and {provider.url_variable}, and that the server runs",
        )
    except (sdk.AuthenticationError, sdk.PermissionDeniedError) as error:
        return Finding(
            "key",
            Level.ERROR,
            f"{options.endpoint} refuses the key (HTTP {error.status_code})",
            f"{provider.key_help}: one that is valid and may use the API",
        )
    except sdk.NotFoundError:
        if options.is_anthropic:
            remedy = "set PERSONA_JUDGE_MODEL to a model that exists, such as claude-haiku-5-5"
            return Finding("model", Level.ERROR, f"there is no model {name}", remedy)
        return silent
    except sdk.APIError as error:
        status = getattr(error, "status_code", None)
        said = f"asked for the model, {options.endpoint} answers {f'HTTP {status}' if status else type(error).__name__}"
        return Finding("model", Level.ERROR, said, "try again later; if it stays, ask whoever runs the endpoint")
    return _lifecycle(found, name)


def _lifecycle(found: Any, name: str) -> Finding:
    stage, retires = getattr(found, "lifecycle", None), getattr(found, "retires_at", None)
    remedy = "set PERSONA_JUDGE_MODEL to a newer model, and capture the baselines anew with it"
    if stage == "retired":
        return Finding("model", Level.ERROR, f"{name} is retired", remedy)
    if isinstance(retires, datetime):
        said = f"{name} retires on {retires.date().isoformat()}"
        soon = retires - datetime.now(UTC) < _RETIRES_SOON
        return Finding("model", Level.NOTE if soon else Level.OK, said, remedy if soon else "")
    if stage == "deprecated":
        return Finding("model", Level.NOTE, f"{name} is deprecated", remedy)
    return Finding("model", Level.OK, f"{name} is there")


def _structured(verdict: Verdict, backend: AnthropicBackend) -> Finding:
    name = "structured output"
    if verdict.unscored is None or verdict.unscored.is_answer:
        if backend.notes:
            remedy = "works, but more answers may be unscored; a server with structured output avoids that"
            return Finding(name, Level.NOTE, backend.notes[0], remedy)
        return Finding(name, Level.OK, f"a test claim was judged by {verdict.model} for {_price(verdict)}")
    if verdict.unscored in (Unscored.INVALID_OUTPUT, Unscored.TRUNCATED):
        remedy = (
            "the model cannot judge: choose a stronger one with PERSONA_JUDGE_MODEL, or a server that enforces a schema"
        )
        return Finding(name, Level.ERROR, f"the answer is no verdict: {verdict.detail}", remedy)
    remedy = "try again; if it stays, see the error and check limits and permissions of the key"
    return Finding(name, Level.ERROR, f"a test call failed: {verdict.detail}", remedy)


def _caching(second: Verdict, options: AnthropicOptions) -> Finding:
    if second.usage.cache_read_tokens:
        return Finding(
            "caching", Level.OK, f"{second.usage.cache_read_tokens} tokens of a prompt were read from the cache"
        )
    remedy = "nothing to be done, but every claim pays for its whole transcript"
    if options.is_anthropic:
        remedy = (
            "check that prompt caching is on for the workspace; until then every claim pays for its whole transcript"
        )
    return Finding("caching", Level.NOTE, f"{options.endpoint} reads nothing from a cache", remedy)


def _price(verdict: Verdict) -> str:
    return "an unknown price" if verdict.usage.usd is None else f"${verdict.usage.usd:.5f}"


def _transcript(tokens: int) -> Trajectory:
    # About twenty tokens a line; half as many again, to be above the minimum for certain.
    return Trajectory(tuple(Entry("Robin", f"{n}. {_LINE}", f"probe-{n}") for n in range(tokens * 3 // 40)))


def _request(name: str, shown: Trajectory) -> JudgeRequest:
    return JudgeRequest("adherence", name, f"Robin speaks of a report ({name} question)", shown)
