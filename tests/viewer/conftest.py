"""The sample world, evaluated before and after the drift, with verdicts on messages and a suite's run; made once and copied."""

import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from persona_pipeline.base.database import tables
from persona_pipeline.judging.open import open_judge
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.suites.grading.results import (
    AssertResult,
    Attempt,
    Failure,
    SuiteResult,
    SuiteVerdict,
    TestResult,
)
from persona_pipeline.suites.running.history import save_suite_result
from persona_pipeline.viewer.runs import newest_runs
from persona_pipeline.world.models import Message
from persona_pipeline.world.world import World
from tests.conftest import BEFORE_THE_DRIFT
from tests.support.evaluating import evaluate_world
from tests.support.worlds import copy_sample
from tests.viewer.serving import client_of, viewing_app


def evaluate_sample(world: World) -> None:
    """Judge both windows of the sample world, with verdicts on messages, and save a run of a suite."""
    judge = open_judge("recorded", world)
    evaluate_world(world, judge=judge, as_of=BEFORE_THE_DRIFT)
    evaluate_world(world, judge=judge)
    for agent_id in ("michael", "pam", "jim"):
        newest, earlier = newest_runs(world.store, agent_id)
        messages = [message for message in world.messages() if message.agent_id == agent_id]
        judged = [message for message in messages if message.created_at <= newest.window.end]
        write_verdicts(world, earlier.id, {message: (Role.OUT, ["outdated"]) for message in judged[::2]})
        write_verdicts(world, newest.id, {message: judged_as(message) for message in judged})
    save_suite_result(world.store, suite_result())


def judged_as(message: Message) -> tuple[Role, list[str]]:
    """Return the verdict of the latest run on a message of Michael, Pam or Jim, and the claims that it names."""
    if message.agent_id == "michael" and message.created_at > BEFORE_THE_DRIFT:
        return Role.OUT, ["own-motives", "brief"] if len(message.text) % 2 else ["own-motives"]
    return (Role.UNCLEAR, ["brief"]) if len(message.text) % 5 == 0 else (Role.IN, [])


def write_verdicts(
    world: World, run_id: str, verdicts: Mapping[Message, tuple[Role, list[str]]], reason: str = "the manner is lost"
) -> None:
    """Write verdicts of a run, each with the first words of its message as the quote."""
    rows = [
        {
            "evaluation_run_id": uuid.UUID(run_id),
            "message_id": message.id,
            "agent_id": message.agent_id,
            "conversation": str(message.channel),
            "said_at": message.created_at,
            "verdict": verdict,
            "claims": claims,
            "quote": message.text[:36] if claims else "",
            "reason": reason if claims else "",
        }
        for message, (verdict, claims) in verdicts.items()
    ]
    with world.store.begin() as connection:
        connection.execute(sa.insert(tables.message_verdicts), rows)


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


@contextmanager
def copy_of(evaluated: Path, root: Path) -> Iterator[World]:
    shutil.copytree(evaluated, root)
    world = World.open(root, f"sqlite:///{root / '.persona' / 'store.db'}")
    yield world
    world.store.close()


@pytest.fixture
def world(evaluated: Path, tmp_path: Path) -> Iterator[World]:
    with copy_of(evaluated, tmp_path / "world") as opened:
        yield opened


@pytest.fixture
def client(world: World) -> Iterator[TestClient]:
    with client_of(viewing_app(world)) as running:
        yield running


@pytest.fixture(scope="session")
def seen(evaluated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world for tests that only read."""
    with copy_of(evaluated, tmp_path_factory.mktemp("seen") / "world") as opened:
        yield opened


@pytest.fixture(scope="session")
def reader(seen: World) -> Iterator[TestClient]:
    """A client for tests that only read."""
    with client_of(viewing_app(seen)) as running:
        yield running
