"""Suites as test files: each test of a suite, with each of its targets, is an item."""

import glob
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import persona_pipeline as pp
from persona_pipeline.base.settings import get_settings
from persona_pipeline.pytest_plugin import evaluations_of
from persona_pipeline.pytest_plugin.failures import Failed, Unscored, suite_text
from persona_pipeline.suites.format.models import Test
from persona_pipeline.suites.grading.results import SuiteVerdict
from persona_pipeline.suites.running.opening import open_targets
from persona_pipeline.suites.running.plan import RunOptions, answered_tests
from persona_pipeline.suites.running.suite_run import run_suite


class SuiteFile(pytest.File):
    """A suite. It is loaded once; each of its items runs as ``suite run --test-id`` does."""

    @cached_property
    def suite(self) -> pp.Suite:
        """The suite, loaded."""
        return pp.load_suite(self.path)

    @cached_property
    def targets(self) -> Any:
        """The available targets: those in the nearest targets file."""
        settings = get_settings().model_copy(update={"root": evaluations_of(self.config).root})
        return open_targets(self.path, None, settings, network=bool(self.config.getoption("--persona-allow-targets")))

    def collect(self) -> Iterator["SuiteItem"]:
        """Yield an item for every test and target; CollectError: the suite is not valid."""
        try:
            found = answered_tests(self.suite, RunOptions(), self.targets)
        except pp.ConfigError as error:
            raise self.CollectError(str(error)) from None
        for name, test, target in found:
            yield SuiteItem.from_parent(self, name=name, test=test, target=target)


class SuiteItem(pytest.Item):
    """One test of a suite with one target."""

    parent: SuiteFile

    def __init__(self, *, test: Test, target: str | None, **fields: Any) -> None:
        super().__init__(**fields)
        self.test, self.target = test, target
        self.extra_keyword_matches.update((*test.tags, *self.parent.suite.tags))

    def runtest(self) -> None:
        """Run the test; Failed: its verdict is ``fail``, or something is not valid; Unscored: it could not be judged."""
        evaluations = evaluations_of(self.config)
        options = RunOptions(
            allow_code=bool(self.config.getoption("--persona-allow-code")),
            test_ids=(glob.escape(self.test.id),),
            targets=(self.target,) if self.target else (),
            workers=1,
            world_root=lambda: evaluations.world.root,
            settings=evaluations.world.settings,
        )
        try:
            run = run_suite(
                self.parent.suite, targets=self.parent.targets, judge=evaluations.suite_judge, options=options
            )
        except pp.ConfigError as error:
            raise Failed(str(error)) from None
        (result,) = run.tests
        if result.verdict is SuiteVerdict.ERROR:
            raise Unscored(suite_text(result))
        if result.verdict is SuiteVerdict.FAIL:
            raise Failed(suite_text(result))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the location of the test."""
        entry = self.test.entry
        line = entry.problem("").line if entry is not None else None
        return self.path, None if line is None else line - 1, f"{self.parent.suite.name}: {self.name}"
