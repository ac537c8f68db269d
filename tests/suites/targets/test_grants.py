"""A suite from a stranger gets neither secrets nor servers without leave."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import persona_pipeline as pp
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli.app import app
from tests.support.messages_server import MessagesServer, message

SECRETS = {
    "ANTHROPIC_API_KEY": "sk-ant-secret-of-the-user",
    "GITHUB_TOKEN": "ghp-secret",
    "DEPLOY_KEY": "deploy-secret",
}


@pytest.fixture
def server() -> Iterator[MessagesServer]:
    with MessagesServer(lambda call: message("9")) as running:
        yield running


@pytest.fixture
def repository(tmp_path: Path, server: MessagesServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stranger's suite whose targets name a server and secrets."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-secret: header-secret")
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    monkeypatch.setenv("PERSONA_ROOT", str(tmp_path / "world"))
    get_settings.cache_clear()
    folder = tmp_path / "stranger"
    (folder / ".git").mkdir(parents=True)
    (folder / "evil.eval.yaml").write_text(
        "execution: {target: thief}\ntests:\n  - {id: a, input: hello, assert: [{type: contains, value: '9'}]}\n",
        "utf-8",
    )
    write_targets(folder, server, system="${{ GITHUB_TOKEN }} ${{ DEPLOY_KEY }}")
    return folder


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    yield
    get_settings.cache_clear()


def write_targets(folder: Path, server: MessagesServer, **more: str) -> None:
    target = {"name": "thief", "provider": "anthropic", "base_url": server.url, **more}
    (folder / "targets.yaml").write_text(json.dumps({"targets": [target]}), "utf-8")


def run(repository: Path, *options: str):
    return CliRunner().invoke(app, ["suite", "run", str(repository / "evil.eval.yaml"), "--json", *options])


def sent(server: MessagesServer) -> str:
    return "".join(f"{call.headers} {call.raw!r}" for call in server.calls)


def test_a_strangers_suite_reads_no_variable_and_asks_no_server(repository: Path, server: MessagesServer) -> None:
    done = run(repository)
    assert isinstance(done.exception, ConfigError)
    assert "reads the environment variable GITHUB_TOKEN; pass --allow-env GITHUB_TOKEN" in str(done.exception)
    write_targets(repository, server)
    done = run(repository)
    assert done.exit_code == 3
    assert "target_not_allowed" in done.stdout
    assert server.calls == []


def test_what_is_allowed_is_sent_and_nothing_else(repository: Path, server: MessagesServer) -> None:
    write_targets(repository, server, system="${{ DEPLOY_KEY }}")
    done = run(repository, "--allow-targets", "--allow-env", "DEPLOY_KEY")
    assert done.exit_code == 0, done.output
    assert "deploy-secret" in sent(server)
    for secret in ("sk-ant-secret", "ghp-secret", "header-secret"):
        assert secret not in sent(server)


def test_a_targets_file_of_the_users_own_is_his(repository: Path, server: MessagesServer, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    write_targets(own, server, system="${{ GITHUB_TOKEN }}")
    done = run(repository, "--targets", str(own / "targets.yaml"))
    assert done.exit_code == 0, done.output
    assert "ghp-secret" in sent(server) and "sk-ant-secret" in sent(server)


def test_another_targets_file_of_the_stranger_is_not(repository: Path, server: MessagesServer) -> None:
    write_targets(repository, server)
    (repository / "mine.yaml").write_text((repository / "targets.yaml").read_text("utf-8"), "utf-8")
    assert "target_not_allowed" in run(repository, "--targets", str(repository / "mine.yaml")).stdout
    assert server.calls == []


def test_the_settings_allow_it_where_no_command_is_typed(
    repository: Path, server: MessagesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_targets(repository, server, system="${{ DEPLOY_KEY }}")
    path = repository / "evil.eval.yaml"
    with pytest.raises(ConfigError, match="DEPLOY_KEY"):
        pp.run_suite(path)
    monkeypatch.setenv("PERSONA_SUITE_ALLOW_ENV", "DEPLOY_KEY, OTHER")
    monkeypatch.setenv("PERSONA_SUITE_ALLOW_TARGETS", "true")
    get_settings.cache_clear()
    assert pp.run_suite(path).exit_code == 0
    assert len(server.calls) == 1


def test_a_file_outside_the_repository_needs_leave(repository: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "answers.json").write_text('{"a": "9"}', "utf-8")
    replay = {"name": "thief", "provider": "replay", "path": "../outside/answers.json"}
    (repository / "targets.yaml").write_text(json.dumps({"targets": [replay]}), "utf-8")
    assert "lies outside the repository" in str(run(repository).exception)
    assert run(repository, "--allow-path", str(outside)).exit_code == 0


@pytest.mark.parametrize("protocol", ["anthropic", "openai"])
def test_a_server_that_a_suite_names_gets_no_ambient_key(
    repository: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, f"secret-{name}")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "x-secret: header-secret")
    with MessagesServer(protocol=protocol) as named:
        write_targets(repository, named, provider=protocol, model="m", system="Be kind.")
        run(repository, "--allow-targets")
        # The server refuses what comes without its key; what matters is what came.
        assert named.requests and "secret" not in "".join(named.seen)


def test_explain_says_what_a_suite_would_read_and_call(repository: Path, server: MessagesServer) -> None:
    done = CliRunner().invoke(app, ["suite", "explain", str(repository / "evil.eval.yaml")])
    assert done.exit_code == 0, done.output
    assert "needs a server (target thief; --allow-targets)" in done.stdout
    assert "needs the environment variable GITHUB_TOKEN (target thief; --allow-env GITHUB_TOKEN)" in done.stdout
    assert server.calls == []
