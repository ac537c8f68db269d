"""A judge against a local server, and trajectories for it to judge."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from persona_pipeline.base.database.engine import Store, open_store
from persona_pipeline.judging.model.asking import ModelBackend, live_judge
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.providers.base import ModelOptions
from tests.support.clock import LONG
from tests.support.messages_server import MessagesServer


@pytest.fixture(autouse=True)
def _no_key_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[MessagesServer]:
    with MessagesServer() as running:
        yield running
    assert running.problems == []


@pytest.fixture
def options(server: MessagesServer) -> ModelOptions:
    return ModelOptions(base_url=server.url, api_key=SecretStr("test-key"), max_retries=0, deadline=LONG, patience=0.2)


@pytest.fixture
def backend(options: ModelOptions) -> ModelBackend:
    return ModelBackend(options)


@pytest.fixture
def judge(backend: ModelBackend) -> OpenedJudge:
    return live_judge(backend)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "empty.db"
    open_store(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def store_path(empty_store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(empty_store, tmp_path / "store.db"))


@pytest.fixture
def store(store_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{store_path}", migrate=False)
    yield opened
    opened.close()
