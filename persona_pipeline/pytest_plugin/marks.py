"""``@pytest.mark.persona``: its arguments, the evaluations of a pytest run, and when a test fails or has no score."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import Unpack

import persona_pipeline as pp
from persona_pipeline.api.evaluating import check_keywords
from persona_pipeline.base.errors import EXIT_OK, EXIT_REGRESSION, worst_exit_code
from persona_pipeline.base.options import OF_JUDGE, EvaluationRequest, given
from persona_pipeline.base.settings import get_settings
from persona_pipeline.base.status import Result
from persona_pipeline.guard.baselines.regression import Rules
from persona_pipeline.guard.gate import counted, weighed
from persona_pipeline.pytest_plugin import RECORDED
from persona_pipeline.pytest_plugin.failures import Failed, Unscored, fallen_text, low_text, unscored_text
from persona_pipeline.reporting.view import ReportView
from persona_pipeline.suites.running.opening import SuiteJudge, open_judge
from persona_pipeline.world.personas import find_world


class Evaluations:
    """Evaluates agents of the run's world with the run's judge, each combination once.

    With pytest-xdist each worker evaluates only for its own tests.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._known: dict[str, pp.Evaluation] = {}

    def __call__(self, *agents: str, **asked: Unpack[pp.Asking]) -> pp.Evaluation:
        """Return an evaluation with its comparison; drops were judged again, as by ``persona_pipeline.evaluate``.

        Args:
            agents: ids; none: all agents.
            asked: options of an evaluation, instead of the ini settings.

        Raises:
            ConfigError: bad input; the message lists all problems.
        """
        wanted: Any = {**self.wanted(asked), "agents": agents or None}
        key = repr(sorted(wanted.items()))
        if key not in self._known:
            self._known[key] = pp.evaluate(self.world, judge=self.judge, **wanted)
        return self._known[key]

    def wanted(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of an evaluation where some are asked for: the others are of the ini file."""
        settings = {name: value for name, value in self._options.items() if name not in OF_JUDGE}
        return {**settings, **given(asked)}

    @cached_property
    def world(self) -> pp.World:
        """The world, opened when it is first needed."""
        return pp.load_world(self.root)

    @property
    def root(self) -> Path:
        """The world's folder."""
        given, configured = self._config.getoption("--persona-root"), self._config.getini("persona_root")
        if given:
            return Path(self._config.invocation_params.dir) / given
        if configured:
            return (self._config.inipath.parent if self._config.inipath else self._config.rootpath) / configured
        return find_world(get_settings())

    @cached_property
    def judge(self) -> pp.Judge:
        """The judge of agents."""
        request = EvaluationRequest(**self._options)
        return pp.open_judge(
            self.world,
            self.judge_name,
            max_usd=self._max_usd,
            record=self._record,
            fresh=request.fresh,
            grouping=request.grouping,
        )

    @cached_property
    def suite_judge(self) -> SuiteJudge:
        """The judge of suites, opened when the first assert needs it."""
        return open_judge(
            self.judge_name, self.world.settings, record=self._record, max_usd=self._max_usd, world=self.world
        )

    @property
    def judge_name(self) -> str:
        """Its name; ``PERSONA_JUDGE`` alone has no test ask a model."""
        return self._config.getoption("--persona-judge") or self._config.getini("persona_judge") or RECORDED

    def close(self) -> None:
        """Close the world's store and the judge."""
        if "suite_judge" in vars(self):
            self.suite_judge.close()
        if "world" in vars(self):
            self.world.store.close()

    @property
    def _record(self) -> bool:
        return bool(self._config.getoption("--persona-record"))

    @property
    def _max_usd(self) -> float | None:
        limit = self._config.getoption("--persona-max-usd")
        worker = getattr(self._config, "workerinput", None)
        # The workers share the budget: together they spend at most max_usd.
        return limit / worker["workercount"] if limit is not None and worker else limit

    @cached_property
    def _options(self) -> dict[str, Any]:
        """The options in the ini file."""
        lines = (line.partition("=") for line in self._config.getini("persona_options"))
        written = {name.strip(): value.strip() for name, _, value in lines}
        of_their_own = {name: self._config.getini(f"persona_{name}") for name in ("window", "as_of", "samples")}
        return EvaluationRequest(**given({**written, **given(of_their_own)})).model_dump(exclude_unset=True)


@dataclass(frozen=True)
class Wanted:
    """The arguments of a mark.

    Attributes:
        options: of the evaluation.
        threshold: lowest score, 0-9, that passes; None: a test passes if nothing dropped below the baseline.
    """

    agents: Sequence[str]
    dimension: str | None = None
    claim: str | None = None
    threshold: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, mark: pytest.Mark) -> "Wanted":
        """Return the arguments of a mark; ConfigError: they are missing or not valid."""
        try:
            own: dict[str, Any] = {
                name: mark.kwargs[name] for name in ("dimension", "claim", "threshold") if name in mark.kwargs
            }
            options = {name: value for name, value in mark.kwargs.items() if name not in own}
            check_keywords(options, pp.Asking)
            wanted = cls(mark.args, options=options, **own)
        except TypeError as error:
            raise pp.ConfigError(f"pytest.mark.persona: {error}") from None
        if not wanted.agents or not all(isinstance(name, str) for name in wanted.agents):
            raise pp.ConfigError("pytest.mark.persona names no agent; write @pytest.mark.persona('an-agent', ...)")
        if wanted.claim is not None and (wanted.dimension is None or wanted.threshold is None):
            raise pp.ConfigError("pytest.mark.persona: a claim needs its dimension and a threshold")
        if wanted.threshold is not None and not 0 <= wanted.threshold <= 9:
            raise pp.ConfigError(f"pytest.mark.persona: the threshold must be from 0 to 9, not {wanted.threshold!r}")
        return wanted


def check_marks(evaluations: Evaluations, marks: Sequence[pytest.Mark]) -> list[str]:
    """Check all marks of a test; return the terms of their verdicts that a plain pass would hide, a sentence each.

    Raises Failed: an agent is below its threshold or dropped, or the input is not valid; Unscored: no failure, but a missing score.
    """
    failed, unscored, terms = list[str](), list[str](), list[str]()
    try:
        for wanted in map(Wanted.of, marks):
            asked: dict[str, Any] = {"dimensions": wanted.dimension, **wanted.options}
            found = evaluations(*wanted.agents, **asked)
            for agent_id in wanted.agents:
                for passed, text in _checked(found, agent_id, wanted):
                    (unscored if passed is None else failed).append(text)
            if wanted.threshold is None:
                # The mark names its agents: the others are not left out of it.
                own = found.report.terms.model_copy(update={"left_out": []})
                terms += [*ReportView(found.report.model_copy(update={"terms": own})).terms, *own.accepted]
    except pp.ConfigError as error:
        raise Failed(str(error)) from None
    if failed:
        raise Failed("\n\n".join([*failed, *unscored]))
    if unscored:
        raise Unscored("\n\n".join(unscored))
    return terms


def _checked(found: pp.Evaluation, agent_id: str, wanted: Wanted) -> Iterator[tuple[bool | None, str]]:
    """Yield the problems: False with the reason of a failure, None with the reason of an inconclusive result."""
    if wanted.threshold is None:
        terms = found.report.terms
        findings = [item for item in weighed(found[agent_id].findings, counted(terms)) if item.exit_code != EXIT_OK]
        concluded = found[agent_id].conclusion
        code = worst_exit_code({item.exit_code for item in findings})
        if not code and (concluded.verdict is Result.HELD or terms.only_fail_on is not None):
            return
        if code == EXIT_REGRESSION:
            yield False, fallen_text(found, agent_id, findings)
        else:
            said = [item.text for item in findings] or [f"{agent_id}: {concluded.reason}"]
            yield None, unscored_text(found, agent_id, wanted.dimension, said)
        return
    try:
        score = found.score(agent_id, wanted.dimension, wanted.claim)
    except pp.UnscoredError as error:
        yield None, unscored_text(found, agent_id, wanted.dimension, [str(error)])
        return
    if score < wanted.threshold - 1e-9:
        yield False, low_text(found, agent_id, wanted.dimension, wanted.claim, wanted.threshold)
    elif wanted.claim is None and (missing := _not_covered(found, agent_id)):
        # A mean over only some of the judgments is not enough for a pass.
        yield None, unscored_text(found, agent_id, wanted.dimension, missing)


def _not_covered(found: pp.Evaluation, agent_id: str) -> list[str]:
    least = found.report.provenance.get("min_coverage", 1.0)
    return [
        f"{agent_id}: {name}: only {item.n_scored} of {item.n_expected} judgments are scored"
        for name, item in found[agent_id].evaluation.dimensions.items()
        if not Rules(min_coverage=least).are_covered([item])
    ]
