"""What is asked of an evaluation: one value that every stage is handed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from persona_pipeline.baselines import PROPOSITION_DELTA, REGRESSION_DELTA
from persona_pipeline.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.evaluation.gate import GateRules
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.propositions import ALL_DIMENSIONS
from persona_pipeline.settings import get_settings
from persona_pipeline.world import World

WINDOW = "7d"


@dataclass(frozen=True)
class EvaluationRequest:
    """What to evaluate, and when it fails.

    Attributes:
        agents: None for everybody with a persona file.
        dimensions: None for all that have propositions; a named one must have some. None named: earlier scores are compared again.
        window: a length of time (``7d``, ``12h``) or ``all``.
        as_of: where the window ends; None: at the newest message that is not in the future.
        since: where the window begins instead, that moment left out; None: ``window`` before its end.
        newest_window: evaluate each agent on the newest window it was evaluated on instead of fixing one.
        samples: judgments per claim.
        history: how many windows before are evaluated too, for the timeline.
        touched: evaluate again the earlier windows whose messages changed since.
        synthetic: generate conversations for agents that have hardly said anything.
        confirm: what fell is judged again before it is called a regression; a replay takes what was recorded then.
        update_baseline: write what was scored to the golden files.
        against: a commit whose baselines, labels, judge changes and lexicons decide; None: those of the world as it is.
        accept_baseline: the world's own golden files decide all the same.
        baseline_windows: from how many windows a baseline is taken, this one and those before: how much weeks differ is learnt.
        threshold, regression_delta, proposition_delta, min_coverage, fail_on, require_calibration: see ``GateRules``;
            min_coverage None: the judge's; require_calibration None: as the settings say.
    """

    agents: Sequence[str] | None = None
    dimensions: Sequence[str] | None = None
    window: str = WINDOW
    as_of: datetime | None = None
    since: datetime | None = None
    newest_window: bool = False
    samples: int = 1
    history: int = 0
    touched: bool = False
    synthetic: bool = False
    confirm: bool = True
    update_baseline: bool = False
    baseline_windows: int = 1
    against: str | None = None
    accept_baseline: bool = False
    threshold: float | None = None
    regression_delta: float = REGRESSION_DELTA
    proposition_delta: float = PROPOSITION_DELTA
    min_coverage: float | None = None
    fail_on: Sequence[str] | None = None
    require_calibration: bool | None = None

    def rules(self, judge: Judge) -> GateRules:
        """Return the gate's rules, with the judge's own minimum coverage where none is given, or that of what failed when recorded.

        Raises:
            ConfigError: one of them cannot be.
        """
        return GateRules(
            regression_delta=self.regression_delta,
            proposition_delta=self.proposition_delta,
            undecided_delta=get_settings().undecided_delta,
            min_coverage=default_coverage(judge) if self.min_coverage is None else self.min_coverage,
            as_recorded=self.min_coverage is None,
            threshold=self.threshold,
            fail_on=self.fail_on,
            require_calibration=(
                get_settings().require_calibration if self.require_calibration is None else self.require_calibration
            ),
        )


class Asked(TypedDict, total=False):
    """What may be asked by name; each as in ``EvaluationRequest``."""

    dimensions: Sequence[str] | None
    window: str
    as_of: datetime | None
    since: datetime | None
    samples: int
    history: int
    touched: bool
    synthetic: bool
    confirm: bool
    threshold: float | None
    regression_delta: float
    proposition_delta: float
    min_coverage: float | None
    fail_on: Sequence[str] | None
    require_calibration: bool | None


def select_agents(world: World, agents: Sequence[str] | None) -> list[str]:
    """Return the agents asked for, in order, each once; whether they have a persona file is seen when it is read.

    Raises:
        ConfigError: there is no agent at all.
    """
    chosen = world.agent_ids() if agents is None else agents
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
