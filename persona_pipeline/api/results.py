"""Results of an evaluation, for a notebook: scores by name, data frames, a table, report files."""

from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Self

from persona_pipeline.base.errors import ConfigError, PersonaError, did_you_mean
from persona_pipeline.evaluation.run import Run
from persona_pipeline.guard.report import AgentReport, Conclusion, Finding
from persona_pipeline.reporting.view import ReportView
from persona_pipeline.world.world import World

if TYPE_CHECKING:
    import pandas as pd

FORMATS = (".json", ".md", ".html", ".xml")


class NamedScore(float):
    """A score, 0-9, with its source, so that a failed assert on it can show the reason."""

    evaluation: "Evaluation"
    of: tuple[str, str | None, str | None]


class UnscoredError(PersonaError):
    """A requested score is missing. The message names it and gives the reason."""


@dataclass(repr=False)
class Evaluation(Run):
    """A finished evaluation of agents, compared with their baselines.

    A notebook shows it as a table. ``report`` is the complete result, which ``persona-pipeline evaluate`` prints as JSON.

    Attributes:
        world: where it was evaluated.
    """

    world: World | None = None

    @property
    def agents(self) -> dict[str, AgentReport]:
        """Each agent's evaluation, comparison and findings, by id."""
        return self.report.agents

    @property
    def findings(self) -> list[Finding]:
        """All findings of the run."""
        return ReportView(self.report).findings

    @property
    def exit_code(self) -> int:
        """0 held, 1 a score dropped or is below the threshold, 3 a result is inconclusive, 4 the budget was used up."""
        return self.report.exit_code

    @property
    def conclusion(self) -> Conclusion:
        """The conclusion of the run: ``verdict`` is ``held``, ``fell`` or ``cannot_tell``; ``reason`` says why."""
        return self.report.conclusion

    def __getitem__(self, agent_id: str) -> AgentReport:
        """Return one agent's evaluation, comparison and findings.

        Raises:
            KeyError: the agent was not evaluated.
        """
        return self.report.agents[agent_id]

    def score(self, agent_id: str, dimension: str | None = None, claim: str | None = None) -> NamedScore:
        """Return a score, 0-9: of an agent, of its dimension, or of a claim in that dimension.

        Raises:
            UnscoredError: the score is missing; a missing score is never a number.
            ConfigError: no agent, dimension or claim with that name was evaluated.
        """
        found = NamedScore(self._score(agent_id, dimension, claim))
        found.evaluation, found.of = self, (agent_id, dimension, claim)
        return found

    def _score(self, agent_id: str, dimension: str | None, claim: str | None) -> float:
        evaluation = self.report.agents[_known("agent", agent_id, self.report.agents)].evaluation
        if dimension is None:
            if claim is not None:
                raise ConfigError("a claim is one of a dimension; name that too")
            if evaluation.overall is None:
                raise UnscoredError(f"{agent_id} has no overall score: no dimension of it is scored")
            return evaluation.overall
        found = evaluation.dimensions[_known("dimension", dimension, evaluation.dimensions)]
        if claim is None:
            if found.score is None:
                raise UnscoredError(f"{agent_id}: {dimension} is unscored: {found.unscored or 'nothing was judged'}")
            return found.score
        row = found.propositions[_known("claim", claim, found.propositions)]
        if row.score is None:
            detail = f" ({row.detail})" if row.detail else ""
            raise UnscoredError(f"{agent_id}: {dimension}/{claim} is unscored: {row.unscored}{detail}")
        return row.score

    def to_frame(self, by: str = "dimension") -> "pd.DataFrame":
        """Return the scores as a data frame; unscored is NaN, with the reason in ``unscored``.

        Args:
            by: one row per ``agent``, ``dimension``, ``claim`` or ``message`` with a verdict.

        Raises:
            ConfigError: the kind of row is unknown.
        """
        from persona_pipeline.api.frames import report_frame

        return report_frame(self.report, by)

    def write(self, path: Path | str) -> Path:
        """Write the report to ``.html``, ``.json``, ``.md`` (Markdown) or ``.xml`` (JUnit) and return the file.

        Raises:
            ConfigError: the name ends in something else.
        """
        from persona_pipeline.base.documents.json import write_atomically
        from persona_pipeline.reporting.render import ENDINGS, render
        from persona_pipeline.reporting.statistics import gather

        target = Path(path)
        if target.suffix not in FORMATS:
            raise ConfigError(f"{target}: the name must end in {', '.join(FORMATS)}")
        if self.world is not None:
            gather(self.world, self.report)
        write_atomically(target, render(self.report, ENDINGS[target.suffix]))
        return target

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {ReportView(self.report).headline}>"

    def _repr_html_(self) -> str:
        from persona_pipeline.reporting.pages.evaluation import short_page
        from persona_pipeline.reporting.render import render_page

        return render_page(short_page(self.report, verbose=True), "notebook")

    @classmethod
    def of(cls, run: Run, world: World | None) -> Self:
        """Return a run in the form for notebooks."""
        return cls(**{item.name: getattr(run, item.name) for item in fields(Run)}, world=world)


def _known(kind: str, name: str, names: Collection[str]) -> str:
    if name not in names:
        hint = did_you_mean(name, names) or f"; there are {', '.join(names) or 'none'}"
        raise ConfigError(f"no {kind} {name!r} was evaluated{hint}")
    return name
