"""Was it better before? Two evaluations, or two runs of a suite, side by side."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from persona_pipeline.api.results import Evaluation
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.evaluation.run import Run
from persona_pipeline.guard.baselines.models import Baseline
from persona_pipeline.suites.grading.results import SuiteResult
from persona_pipeline.suites.running.history import WIN, Comparison

if TYPE_CHECKING:
    import pandas as pd

Rows = SuiteResult | Path | str | Sequence[Mapping[str, Any]]


@dataclass(repr=False)
class EvaluationComparison(Evaluation):
    """An evaluation with the earlier scores as its baselines.

    Attributes:
        only_before, only_after: agents that only one of the two has.
    """

    only_before: Sequence[str] = ()
    only_after: Sequence[str] = ()

    @property
    def worse(self) -> bool:
        """Whether a dimension or a claim dropped further than allowed."""
        return any(report.comparison.regressed for report in self.agents.values())


@dataclass(frozen=True, repr=False)
class SuiteComparison(Comparison):
    """Two runs of a suite, paired by test: ``mean`` and its ``interval`` are of the change, after minus before."""

    def to_frame(self) -> "pd.DataFrame":
        """Return one row per test that both runs have; a missing score is NaN, and so is its change."""
        from persona_pipeline.api.frames import pairs_frame

        return pairs_frame(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline}>"

    def _repr_html_(self) -> str:
        from persona_pipeline.reporting.pages.suites import pairs_page
        from persona_pipeline.reporting.render import render_page

        return render_page(pairs_page(self), "notebook")


@overload
def compare(
    before: Evaluation | Baseline | Iterable[Baseline],
    after: Evaluation,
    *,
    regression_delta: float | None = None,
    proposition_delta: float | None = None,
) -> EvaluationComparison: ...


@overload
def compare(before: Rows, after: Rows, *, threshold: float = WIN) -> SuiteComparison: ...


def compare(
    before: Any,
    after: Any,
    *,
    regression_delta: float | None = None,
    proposition_delta: float | None = None,
    threshold: float = WIN,
) -> EvaluationComparison | SuiteComparison:
    """Compare two evaluations, or two runs of a suite, before and after. Makes no API calls.

    Evaluations: the same statistical tests as against a golden baseline, with ``before`` in its place. Suites: tests pair by id.

    Args:
        before: an evaluation, a baseline or several; or a run of a suite, or its ``.jsonl`` or ``.json`` file.
        after: an evaluation; or a run of a suite, or its file.
        regression_delta, proposition_delta: points, 0-9, a dimension or a claim may drop; None: as ``after`` was evaluated.
        threshold: difference, 0-1, from which a test of a suite is won or lost.

    Raises:
        ConfigError: the two do not go together, have nothing in common, or a file cannot be read.
    """
    if isinstance(after, Evaluation):
        return _evaluations(before, after, regression_delta, proposition_delta)
    if isinstance(after, Baseline):
        raise ConfigError("a baseline can only be what was before; evaluate what is now")
    if isinstance(before, Evaluation | Baseline):
        raise ConfigError("an evaluation and a run of a suite do not compare; give two of a kind")
    return _suites(before, after, threshold)


def _evaluations(
    before: Evaluation | Baseline | Iterable[Baseline],
    after: Evaluation,
    regression_delta: float | None,
    proposition_delta: float | None,
) -> EvaluationComparison:
    from persona_pipeline.evaluation.decide import set_beside
    from persona_pipeline.evaluation.read import WorldReader
    from persona_pipeline.guard.gate import GateRules

    if after.world is None:
        raise ConfigError("the evaluation does not know its world; make it with evaluate")
    known, told = _baselines(before), after.report.provenance
    shared = [name for name in after.agents if name in known]
    if not shared:
        raise ConfigError(
            f"the two have no agent in common: {', '.join(known) or 'nobody'}, and {', '.join(after.agents)}"
        )
    asked = {"regression_delta": regression_delta, "proposition_delta": proposition_delta, "min_coverage": None}
    allowed = {name: told.get(name) if value is None else value for name, value in asked.items()}
    rules = GateRules(**{name: value for name, value in allowed.items() if value is not None})
    return EvaluationComparison(
        **vars(Run(set_beside(rules, WorldReader(after.world).reference(), known, after.report))),
        world=after.world,
        only_before=[name for name in known if name not in after.agents],
        only_after=[name for name in after.agents if name not in known],
    )


def _baselines(before: Evaluation | Baseline | Iterable[Baseline]) -> dict[str, Baseline]:
    from persona_pipeline.evaluation.decide import baseline_of

    if isinstance(before, Evaluation):
        return {name: baseline_of(report.evaluation) for name, report in before.agents.items()}
    several = [before] if isinstance(before, Baseline) else before
    if isinstance(several, str | Path | SuiteResult) or not all(isinstance(item, Baseline) for item in several):
        raise ConfigError("an evaluation is compared with an evaluation or with baselines")
    return {item.agent_id: item for item in several}


def _suites(before: Rows, after: Rows, threshold: float) -> SuiteComparison:
    from persona_pipeline.suites.running.history import compare_rows

    found = compare_rows(_rows(before), _rows(after), threshold=threshold)
    if not found.pairs:
        raise ConfigError("the two runs have no test in common")
    return SuiteComparison(**{item.name: getattr(found, item.name) for item in fields(Comparison)})


def _rows(run: Rows) -> Sequence[Mapping[str, Any]]:
    from persona_pipeline.suites.running.history import read_rows

    if isinstance(run, SuiteResult):
        return [test.to_dict() for test in run.tests]
    return read_rows(run) if isinstance(run, str | Path) else run
