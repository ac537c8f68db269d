"""The sample world, evaluated before and after the drift, with a suite's run; made once and copied."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from persona_pipeline.judging.open import open_judge
from persona_pipeline.suites.grading.results import (
    AssertResult,
    Attempt,
    Failure,
    SuiteResult,
    SuiteVerdict,
    TestResult,
)
from persona_pipeline.suites.running.history import save_suite_result
from persona_pipeline.world.world import World
from tests.conftest import BEFORE_THE_DRIFT
from tests.support.evaluating import evaluate_world
from tests.support.worlds import copy_sample
from tests.viewer.serving import client_of, viewing_app


def evaluate_sample(world: World) -> None:
    """Judge both windows of the sample world, and save a run of a suite."""
    judge = open_judge("recorded", world)
    evaluate_world(world, judge=judge, as_of=BEFORE_THE_DRIFT)
    evaluate_world(world, judge=judge)
    save_suite_result(world.store, suite_result())


def suite_result() -> SuiteResult:
    """Return a suite of 130 tests of which the last two went wrong."""

    def test(number: int, verdict: SuiteVerdict, score: float | None) -> TestResult:
        failure = Failure("timeout", "no answer") if score is None else None
        found = AssertResult("says-ok", "contains", score, 1.0, verdict, misses=("<b>not ok</b>",), error=failure)
        return TestResult(f"t{number:03}", f"t{number:03}", score, verdict, Attempt(1, score, verdict, (found,)))

    tests = [test(number, SuiteVerdict.PASS, 1.0) for number in range(128)]
    wrong = [test(128, SuiteVerdict.FAIL, 0.0), test(129, SuiteVerdict.ERROR, None)]
    return SuiteResult("order-desk", "order-desk.eval.yaml", [*tests, *wrong], "0")


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_sample(tmp_path_factory.mktemp("viewed") / "world")
    world = World.open(root, f"sqlite:///{root / '.persona' / 'store.db'}")
    evaluate_sample(world)
    world.store.close()
    return root


@pytest.fixture
def world(evaluated: Path, tmp_path: Path) -> Iterator[World]:
    root = shutil.copytree(evaluated, tmp_path / "world")
    opened = World.open(root, f"sqlite:///{root / '.persona' / 'store.db'}")
    yield opened
    opened.store.close()


@pytest.fixture
def client(world: World) -> Iterator[TestClient]:
    with client_of(viewing_app(world)) as running:
        yield running
