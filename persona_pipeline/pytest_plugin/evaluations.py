"""The evaluations of one pytest run: one world, one judge, each question once."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import Unpack

import persona_pipeline as pp
from persona_pipeline.options import OF_JUDGE, EvaluationRequest, given
from persona_pipeline.pytest_plugin import RECORDED
from persona_pipeline.suites.running.opening import SharedJudge, judge_opener


class Evaluations:
    """Evaluates agents of the run's world with the run's judge; what was evaluated is not evaluated again.

    With pytest-xdist each worker evaluates what its own tests ask for.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._known: dict[str, pp.Evaluation] = {}

    def __call__(self, *agents: str, **asked: Unpack[pp.Asking]) -> pp.Evaluation:
        """Return an evaluation with its comparison; what fell was judged again, as by ``persona_pipeline.evaluate``.

        Args:
            agents: none: everybody.
            asked: options of an evaluation, instead of the ini settings.

        Raises:
            ConfigError: bad input, everything wrong with it.
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
        given, configured = self._config.getoption("--persona-root"), self._ini("persona_root")
        if given:
            return pp.load_world(Path(self._config.invocation_params.dir) / given)
        if configured:
            folder = self._config.inipath.parent if self._config.inipath else self._config.rootpath
            return pp.load_world(folder / configured)
        return pp.load_world(None)

    @cached_property
    def judge(self) -> pp.Judge:
        """Who judges agents."""
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
    def suite_judge(self) -> SharedJudge:
        """Who judges in suites, opened when the first assert needs it."""
        opener = judge_opener(self.judge_name, record=self._record, max_usd=self._max_usd, world=self.world)
        return SharedJudge(opener)

    @property
    def judge_name(self) -> str:
        """Its name; ``PERSONA_JUDGE`` alone has no test ask a model."""
        return self._config.getoption("--persona-judge") or self._ini("persona_judge") or RECORDED

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
        # The workers together spend no more than was said.
        return limit / worker["workercount"] if limit is not None and worker else limit

    @cached_property
    def _options(self) -> dict[str, Any]:
        """What the ini file asks for."""
        lines = (line.partition("=") for line in self._config.getini("persona_options"))
        written = {name.strip(): value.strip() for name, _, value in lines}
        of_their_own = {name: self._ini(f"persona_{name}") for name in ("window", "as_of", "samples")}
        return EvaluationRequest(**given({**written, **given(of_their_own)})).model_dump(exclude_unset=True)

    def _ini(self, name: str) -> str:
        return self._config.getini(name)
