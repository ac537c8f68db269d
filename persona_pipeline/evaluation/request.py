"""What a request comes to: whom, what, and by which rules."""

from collections.abc import Sequence

from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.base.options import EvaluationRequest as EvaluationRequest
from persona_pipeline.base.settings import get_settings
from persona_pipeline.guard.gate import GateRules
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.world.propositions.dimensions import ALL_DIMENSIONS
from persona_pipeline.world.world import World


def settled(world: World, request: EvaluationRequest) -> EvaluationRequest:
    """Return a request with what the world's settings say where it says nothing: the one place where an evaluation reads them.

    Raises:
        ConfigError: they are not valid.
    """
    file, settings = world.written, world.settings
    # The environment goes before the file, and the file before what is so by default.
    ahead = {name: getattr(settings, name) for name in ("undecided_delta", "require_calibration")}
    said = {**ahead, **file.options, **{name: ahead[name] for name in ahead.keys() & settings.model_fields_set}}
    if settings.model_fields_set & {"min_coverage_live", "min_coverage_replay"}:
        said.pop("min_coverage", None)
    return request.settled({"judge": settings.judge, **said, "accepted_drops": file.accepted_drops})


def rules_of(request: EvaluationRequest, judge: Judge) -> GateRules:
    """Return the gate's rules, with the judge's own minimum coverage where none is given, or that of what failed when recorded.

    Raises:
        ConfigError: one of them cannot be.
    """
    settings = get_settings()
    return GateRules(
        regression_delta=request.regression_delta,
        proposition_delta=request.proposition_delta,
        undecided_delta=settings.undecided_delta if request.undecided_delta is None else request.undecided_delta,
        accepted_drops=request.accepted_drops,
        min_coverage=default_coverage(judge) if request.min_coverage is None else request.min_coverage,
        as_recorded=request.min_coverage is None,
        threshold=request.threshold,
        fail_on=request.fail_on,
        require_calibration=(
            settings.require_calibration if request.require_calibration is None else request.require_calibration
        ),
    )


def select_agents(world: World, agents: Sequence[str] | None) -> list[str]:
    """Return the agents asked for, in order, each once; whether they have a persona file is seen when it is read.

    Raises:
        ConfigError: there is no agent at all, or ``persona.yaml`` is not valid.
    """
    chosen = [name for name in world.agent_ids() if name not in world.written.leave_out] if agents is None else agents
    if not chosen:
        raise ConfigError(f"no agents: write personas/<agent_id>.yaml in {world.root}")
    return list(dict.fromkeys(chosen))


def select_dimensions(dimensions: Sequence[str] | None) -> list[str]:
    """Return the dimensions asked for, in their fixed order.

    Raises:
        ConfigError: one is unknown.
    """
    if dimensions is None:
        return list(ALL_DIMENSIONS)
    problems = [
        Problem(f"unknown dimension {d!r}{did_you_mean(d, ALL_DIMENSIONS) or '; known: ' + ', '.join(ALL_DIMENSIONS)}")
        for d in dimensions
        if d not in ALL_DIMENSIONS
    ]
    if problems:
        raise ConfigError(problems)
    return [dimension for dimension in ALL_DIMENSIONS if dimension in dimensions]


def default_coverage(judge: Judge) -> float:
    """Return the share of judgments that must be scored: all in replay, 95 % live, unless the settings say otherwise."""
    settings = get_settings()
    return settings.min_coverage_live if judge.live else settings.min_coverage_replay
