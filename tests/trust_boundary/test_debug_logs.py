"""Every logger at DEBUG, of every package that is used: no secret that was given stands in what is written.

The commands run as processes over real sockets, with secrets of their own planted wherever one can be given.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from persona_pipeline.base.database.engine import open_store
from persona_pipeline.corrections.configuration import write_config
from persona_pipeline.testing.worlds import write_small_world
from persona_pipeline.world import World
from tests.conftest import POSTGRES
from tests.corrections.support import GATED
from tests.support.clock import LONG
from tests.support.messages_server import ANSWER, MessagesServer, status
from tests.support.otlp_relay import post
from tests.support.protocols import ACCESS_KEY, BEARER, SECRET_KEY, SESSION_TOKEN
from tests.support.providers import MODELS
from tests.support.waiting import wait_until

# Several commands of one environment in one process; what any of them is told more stands in front.
COMMANDS = """
import json, logging, os, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
logging.captureWarnings(True)
from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli import main
for more, *arguments in json.loads(sys.argv[1]):
    os.environ.update(more)
    get_settings.cache_clear()
    sys.argv = ["persona-pipeline", *arguments]
    try:
        main()
    except SystemExit as ended:
        print("exit code", ended.code, flush=True)
"""
Command = Sequence[str]
STORING = """
from persona_pipeline.defs.platform.assets import open_folder
from obstore.store import S3Store
store = open_folder("s3://bucket/reports", "PERSONA_REPORTS")
print(repr(store))
try:
    import obstore
    obstore.put(S3Store("bucket", retry_config={"max_retries": 0}), "a", b"a")
except Exception as error:
    import logging
    logging.exception("not written to the bucket: %r", error)
"""
# Each as long as real ones, and none like another.
PLANTED = {
    name: f"planted-{name.lower().replace('_', '-')}-{number:08d}"
    for number, name in enumerate(
        (
            "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PERSONA_RECORDINGS_SECRET",
            "PERSONA_CORRECTIONS_TOKEN", "PERSONA_CORRECTIONS_CONFIG_TOKEN", "PERSONA_COLLECT_TOKEN", "SUITE_TOKEN",
            "DATABASE", "OTEL", "WRONG",
        ),
        start=7_310_211,
    )
}  # fmt: skip

# What the server looks for.
PLANTED |= {"OPENAI_API_KEY": BEARER, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_SESSION_TOKEN": SESSION_TOKEN}


def leaked(said: str) -> list[str]:
    """Return the names of secrets that stand in a text, whole or without what they begin with."""
    return [name for name, secret in PLANTED.items() if secret in said or secret[-12:] in said]


def pointed_at(server: MessagesServer) -> dict[str, str]:
    """Return the variables that send every provider's calls to a server."""
    return dict.fromkeys(("ANTHROPIC_BASE_URL", "ANTHROPIC_BEDROCK_BASE_URL", "OPENAI_BASE_URL"), server.url)


class Scene:
    """A world, a server that speaks a provider's protocol, and the environment of the commands."""

    def __init__(self, root: Path, server: MessagesServer, database: str | None) -> None:
        self.root, self.server, self.log = root, server, root.parent / "log"
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self.environment = kept | pointed_at(server) | {name: secret for name, secret in PLANTED.items() if "_" in name} | {
            "PERSONA_ROOT": str(root),
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_REGION": "eu-central-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "PERSONA_OTEL_EVENTS": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": server.url.removesuffix("/v1"),
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{PLANTED['OTEL']}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2",
        }  # fmt: skip
        if database is not None:
            named = make_url(database).set(password=PLANTED["DATABASE"])
            self.environment["PERSONA_DATABASE_URL"] = named.render_as_string(hide_password=False)

    def start(self, *commands: Command, more: Sequence[Mapping[str, str]] = ()) -> subprocess.Popen[bytes]:
        """Start commands, one after another; ``more`` is what each is told beside.

        What they write, to either stream, goes into ``log``: a pipe that nobody reads fills up.
        """
        paired = list(zip(commands, more or [{}] * len(commands), strict=True))
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-c", COMMANDS, json.dumps([[told, *each] for each, told in paired])],
                env=self.environment,
                cwd=self.root,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def run(self, *commands: Command, more: Sequence[Mapping[str, str]] = ()) -> str:
        """Return what commands write, each of which ended by itself."""
        self.start(*commands, more=more).wait(LONG)
        said = self.log.read_text("utf-8")
        assert said.count("exit code ") >= len(commands), said[-3000:]
        return said


@contextmanager
def scene(folder: Path, database: str | None = None) -> Iterator[Scene]:
    with MessagesServer() as server:
        yield Scene(write_small_world(folder / "world"), server, database)


def test_a_judge_a_signature_and_a_collector_of_events(tmp_path: Path) -> None:
    commands, more = list[Command](), list[dict[str, str]]()
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(MessagesServer(protocol=name)) for name in ("anthropic", "openai", "bedrock")
        }
        for provider, server in servers.items():
            server.script(ANSWER, status(500), status(429, "rate_limit_error"), ANSWER)
            root = write_small_world(tmp_path / provider)
            told = {"PERSONA_JUDGE": provider, "PERSONA_JUDGE_MODEL": MODELS[provider], "PERSONA_ROOT": str(root)}
            told |= pointed_at(server)
            commands.append(("evaluate", "--judge", provider, "--record"))
            more.append(told)
        # It asks Dagster too, which takes long; calls are logged as those of evaluations are.
        commands.append(("doctor", "--judge"))
        more.append(told)
        said = Scene(tmp_path / "anthropic", servers["anthropic"], None).run(*commands, more=more)
        assert [name for name, server in servers.items() if not server.calls] == [], said[-3000:]
    # The loggers that see the calls of all three, and none of a command that was not understood.
    assert "DEBUG:" in said and "Usage:" not in said, said[-2000:]
    assert leaked(said) == []


@pytest.mark.parametrize("database", [POSTGRES])
def test_a_database_that_answers_and_one_that_does_not(database: str, postgres_url: str, tmp_path: Path) -> None:
    with scene(tmp_path, database=postgres_url) as here:
        live = ("evaluate", "--judge", "anthropic")
        secret = PLANTED["DATABASE"]
        gone = f"postgresql://somebody:{secret}@127.0.0.1:9/none"
        odd = [f"mysql://somebody:{secret}@127.0.0.1:9/none", f"somebody:{secret}@127.0.0.1"]
        more = [{}, *({"PERSONA_DATABASE_URL": url} for url in (gone, *odd))]
        said = here.run(live, live, ("evaluate",), ("evaluate",), more=more)
        assert here.server.calls, said[-2000:]
    assert "check PERSONA_DATABASE_URL" in said and leaked(said) == []


def test_what_a_suite_sends_to_its_targets(tmp_path: Path) -> None:
    with scene(tmp_path) as here:
        folder = here.root / "suites"
        folder.mkdir(exist_ok=True)
        targets = [
            {"name": "web", "provider": "http", "url": here.server.url, "headers": {"authorization": "Bearer ${{ SUITE_TOKEN }}"}},
            {"name": "model", "provider": "anthropic", "base_url": here.server.url, "api_key": "${{ SUITE_TOKEN }}"},
            {"name": "nobody", "provider": "http", "url": "http://127.0.0.1:9", "headers": {"x-key": "${{ SUITE_TOKEN }}"}},
        ]  # fmt: skip
        (folder / "targets.yaml").write_text(json.dumps({"targets": targets}), "utf-8")
        commands: list[Command] = []
        for target in targets:
            test = "{id: a, input: hello, assert: [{type: contains, value: '9'}]}"
            suite = folder / f"{target['name']}.eval.yaml"
            suite.write_text(f"execution: {{target: {target['name']}}}\ntests:\n  - {test}\n", "utf-8")
            grants = ("--allow-env", "SUITE_TOKEN", "--allow-targets")
            commands += [("suite", "run", str(suite), *shown, *grants) for shown in ((), ("--json",))]
        said = here.run(*commands)
        assert here.server.requests
    assert leaked(said) == []


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@pytest.mark.parametrize(
    ("command", "path", "token"),
    [
        (("corrections", "serve"), "/v1/gate", "PERSONA_CORRECTIONS_TOKEN"),
        (("collect",), "/v1/traces", "PERSONA_COLLECT_TOKEN"),
    ],
    ids=["the gate", "the collector"],
)
def test_the_services_tokens(command: tuple[str, ...], path: str, token: str, tmp_path: Path) -> None:
    body = json.dumps({"agent_id": "ann", "text": "hello 8", "channel": "c"}).encode() if path == "/v1/gate" else b""
    with scene(tmp_path) as here:
        world = World.open(here.root)
        world.sync()
        write_config(world.store, "ann", GATED)
        world.store.close()
        port = free_port()
        process = here.start((*command, "--port", str(port)))
        url = f"http://127.0.0.1:{port}"
        try:
            json_body = {"content-type": "application/json"} if body else {}

            def asked(secret: str) -> int:
                return post(f"{url}{path}", body, {"authorization": f"Bearer {PLANTED[secret]}", **json_body})[0]

            wait_until(lambda: asked(token) == 200, seconds=LONG)
            assert asked("WRONG") == 401
            post(f"{url}{path}?token={PLANTED['WRONG'][:7]}", b"{", {"authorization": f"Bearer {PLANTED[token]}"})
        finally:
            process.terminate()
            process.wait(LONG)
            said = here.log.read_text("utf-8")
    assert said and leaked(said) == []


def test_a_store_of_objects() -> None:
    # Of the extra "objects", which is not among what developers install.
    pytest.importorskip("obstore")
    code = "import logging; logging.basicConfig(level=logging.DEBUG)\n" + STORING
    secrets = {name: PLANTED[name] for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")}
    url = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "eu-central-1",
    }
    environment = os.environ | secrets | url | {"AWS_ACCESS_KEY_ID": ACCESS_KEY}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONG, check=False)
    assert "bucket" in done.stderr and leaked(done.stdout + done.stderr) == []


def test_the_settings_themselves_show_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from persona_pipeline.base.settings import Settings

    monkeypatch.setenv("PERSONA_RECORDINGS_SECRET", PLANTED["PERSONA_RECORDINGS_SECRET"])
    monkeypatch.setenv("PERSONA_DATABASE_URL", f"postgresql://a:{PLANTED['DATABASE']}@h/n")
    settings = Settings()
    assert leaked(repr(settings) + str(settings.model_dump()) + settings.model_dump_json()) == []
    with pytest.raises(Exception, match="cannot be opened") as failed:
        open_store(f"postgresql://a:{PLANTED['DATABASE']}@127.0.0.1:9/n")
    assert leaked(repr(failed.value) + repr(failed.value.__cause__)) == []
