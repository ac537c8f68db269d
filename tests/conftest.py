"""Fixtures every test can use: a copy of the sample world, a small world, and a store on each database."""

import contextlib
import gc
import os
import shutil
import signal
import threading
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy.engine import URL

from persona_pipeline.base.database import engine
from persona_pipeline.base.database.engine import Store, open_store
from persona_pipeline.base.settings import get_settings
from persona_pipeline.testing.worlds import write_small_world
from persona_pipeline.world import World
from tests.support.browser import chromium
from tests.support.clock import Clock
from tests.support.command_line import Cli, in_process
from tests.support.forking import forked_commands, stop_server
from tests.support.made_once import made_once
from tests.support.messages_server import MessagesServer
from tests.support.postgres import fresh_database, postgres_server
from tests.support.worlds import PROJECT, copy_sample

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BEFORE_THE_DRIFT = datetime(2026, 6, 14, 23, 59, 59, tzinfo=UTC)
POSTGRES = pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))

# A shell lets programs ignore SIGINT that it starts in the background, and Dagster's take SIGTERM for it: none could be stopped.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples every time, so that a change is red for what it changed. Every night a property that has no number of its own is
# tried with a thousand new examples: --hypothesis-profile=thorough.
settings.register_profile(
    "default", max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000, derandomize=False)
settings.load_profile("default")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    from tests.support.scheduling import FileScheduling

    if config.getvalue("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False
    return FileScheduling(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    # All that is collected stays until the end: a fifth of the time would go into looking for garbage in it. Disabled it would be
    # enabled again by what is imported meanwhile.
    gc.set_threshold(0)
    try:
        return (yield)
    finally:
        gc.freeze()
        # As the command line has it.
        gc.set_threshold(100_000, 30, 30)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    from tests.support.scheduling import in_order

    in_order(items, named=config.getoption("loadgroup", default=False))


def _shut_out(patched: pytest.MonkeyPatch) -> None:
    """Take away database, key and world of the person who runs the tests."""
    for name in [*os.environ]:
        if name.startswith(("PERSONA_", "ANTHROPIC_", "DAGSTER_")):
            patched.delenv(name)
    # Which transcripts are drawn is no business of tests that count calls.
    patched.setenv("PERSONA_JUDGE_CANARIES", "0")
    # Neither is the call about single messages: tests of that call set this to 400.
    patched.setenv("PERSONA_MESSAGE_VERDICTS", "0")
    # Nor those about anchors: tests of the check of the judge set this to 20.
    patched.setenv("PERSONA_ANCHORS", "0")
    get_settings.cache_clear()


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    _shut_out(monkeypatch)
    yield
    get_settings.cache_clear()


@pytest.fixture(scope="session", autouse=True)
def _made_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched, made_once():
        _shut_out(patched)
        try:
            yield
        finally:
            stop_server()


@pytest.fixture(scope="session")
def _new_store(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a store that was just made."""
    path = tmp_path_factory.mktemp("store") / "store.db"
    open_store(f"sqlite:///{path}").close()
    return path.read_bytes()


@pytest.fixture(autouse=True)
def _new_stores_are_copies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, _new_store: bytes) -> None:
    """A new store on SQLite is a copy of one that was made: making it takes longer than most tests. tests/store makes its own."""
    if Path(request.node.path).is_relative_to(PROJECT / "tests" / "store"):
        return
    made = engine.upgrade
    lock = threading.Lock()

    def upgrade(opened: engine.Store) -> None:
        name = opened.engine.url.database
        if opened.is_sqlite and name and name != ":memory:":
            with lock, contextlib.suppress(OSError), Path(name).open("xb") as file:
                file.write(_new_store)
                return
        made(opened)

    monkeypatch.setattr(engine, "upgrade", upgrade)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of this process, to be put forward."""
    return Clock.take_over(monkeypatch)


@pytest.fixture
def sample_root(tmp_path: Path) -> Path:
    """A copy of the sample world, to be edited."""
    return copy_sample(tmp_path / "world")


@pytest.fixture
def cli(sample_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run commands in this process, on a copy of the sample world."""
    return in_process(sample_root, monkeypatch, capsys)


@pytest.fixture
def sample_world(sample_root: Path) -> Iterator[World]:
    world = World.open(sample_root)
    yield world
    world.store.close()


@pytest.fixture(scope="session")
def finished_voices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample world with its store, in which everybody's voice is learnt from the two weeks before the drift; to be copied."""
    from persona_pipeline.evaluation.voice import VoiceWatches

    root = copy_sample(tmp_path_factory.mktemp("voices") / "world")
    world = World.open(root, f"sqlite:///{root / '.persona' / 'store.db'}")
    world.sync()
    assert VoiceWatches(world, world.agent_ids(), BEFORE_THE_DRIFT).notes == []
    world.store.close()
    return root


@pytest.fixture
def learnt_root(finished_voices: Path, tmp_path: Path) -> Path:
    """A copy of the sample world whose voices are learnt, to be edited."""
    return Path(shutil.copytree(finished_voices, tmp_path / "world"))


@pytest.fixture
def learnt_world(learnt_root: Path) -> Iterator[World]:
    world = World.open(learnt_root)
    yield world
    world.store.close()


@pytest.fixture
def small_root(tmp_path: Path) -> Path:
    """A world of two agents, a few messages and a claim a dimension; nothing is recorded."""
    return write_small_world(tmp_path / "small")


@pytest.fixture
def small_world(small_root: Path) -> Iterator[World]:
    world = World.open(small_root)
    yield world
    world.store.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MessagesServer]:
    """A server that speaks the Messages API, to which the environment points."""
    with MessagesServer() as running:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", running.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        get_settings.cache_clear()
        yield running
    assert running.problems == []


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """A browser of this file's tests. While it is there, this thread has an event loop: no other file's may be run in it."""
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="session")
def forked() -> Path:
    """The folder of a Python, and of Dagster's commands, that are forked from a process that has loaded them."""
    return forked_commands()


@pytest.fixture(scope="session")
def postgres() -> Iterator[URL]:
    """A Postgres server of this test run."""
    # Not in pytest's folder: another pytest that starts as root takes it away from the user the server runs as.
    with TemporaryDirectory(prefix="postgres") as folder, postgres_server(Path(folder)) as url:
        yield url


@pytest.fixture
def postgres_url(postgres: URL) -> Iterator[str]:
    """A new, empty database."""
    with fresh_database(postgres) as url:
        yield url


@pytest.fixture(params=["sqlite", POSTGRES])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new, empty database of each kind."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    opened = open_store(database_url)
    yield opened
    opened.close()
