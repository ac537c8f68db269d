"""Who hears of a run: in a few lines, by an address that nobody sees, and never at the price of the run."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.reporting import notify as notifying
from persona_pipeline.reporting.notify import Notice, addresses, main, post, require_named
from tests.support.command_line import Cli, in_process

BEFORE_THE_DRIFT = ("--as-of", "2026-06-14T23:59:59Z")
SUITE = """\
name: greetings
description: One test that passes and one that fails.
tests:
- {id: kept, input: hi, assert: [{type: contains, value: hello}]}
- {id: broken, input: hi, assert: [{type: contains, value: goodbye}]}
"""


@pytest.fixture
def cli(sample_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    (sample_root / "persona.yaml").write_text("alerts: [voice-team, other]\n", encoding="utf-8")
    return in_process(sample_root, monkeypatch, capsys)


@pytest.fixture
def heard(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """What was posted to the address of voice-team."""
    httpserver.expect_request("/services/S3CRET", method="POST").respond_with_data("ok")
    monkeypatch.setenv("PERSONA_ALERT_WEBHOOK_VOICE_TEAM", httpserver.url_for("/services/S3CRET"))
    return lambda: [json.loads(request.data) for request, _ in httpserver.log]


def test_a_drop_is_told_in_the_first_lines_of_its_report(cli: Cli, heard: Callable[[], list[dict[str, Any]]]) -> None:
    done = cli("evaluate", "--notify", "voice-team", "--notify", "other")
    assert done.returncode == 1
    assert "not notified: PERSONA_ALERT_WEBHOOK_OTHER is not set" in done.stderr
    assert "S3CRET" not in done.stdout + done.stderr
    [told] = heard()
    title, first, *_ = told["text"].splitlines()
    assert title == "*Persona evaluation: 3 in character, 1 drifted*"
    assert first.startswith("• Michael Scott: 4 of 5 dimensions dropped; worst: ")
    assert (told["verdict"], told["exit_code"], told["agents"]) == ("fell", 1, {"michael": "fell"})


def test_where_all_held_nobody_is_disturbed(cli: Cli, heard: Callable[[], list[dict[str, Any]]]) -> None:
    assert cli("evaluate", "--notify", "voice-team", *BEFORE_THE_DRIFT).returncode == 0
    assert heard() == []


def test_what_cannot_be_told_is_told(cli: Cli, sample_root: Path, heard: Callable[[], list[dict[str, Any]]]) -> None:
    (sample_root / "baselines" / "jim.json").unlink()
    done = cli("evaluate", "--agents", "jim", "--notify", "voice-team", *BEFORE_THE_DRIFT)
    assert (done.returncode, [told["verdict"] for told in heard()]) == (3, ["cannot_tell"])


def test_a_failed_suite_is_told_test_by_test(
    cli: Cli, sample_root: Path, heard: Callable[[], list[dict[str, Any]]]
) -> None:
    suite = sample_root / "greetings.eval.yaml"
    suite.write_text(SUITE, encoding="utf-8")
    answers = sample_root / "answers.json"
    answers.write_text(json.dumps({"kept": "hello", "broken": "hello"}), encoding="utf-8")
    done = cli("suite", "run", str(suite), "--responses", str(answers), "--notify", "voice-team")
    assert done.returncode == 1, done.stderr
    [told] = heard()
    assert told["text"].startswith("*Eval suites: greetings: 1 of 2 passed, 1 failed")
    assert told["tests"] == {"broken": "fail"}


def test_a_lost_voice_is_told(learnt_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                              heard: Callable[[], list[dict[str, Any]]]) -> None:  # fmt: skip
    (learnt_root / "persona.yaml").write_text("alerts: [voice-team]\n", encoding="utf-8")
    run = in_process(learnt_root, monkeypatch, capsys)
    done = run("watch", "--once", "--since", "2026-06-15T00:00:00Z", "--notify", "voice-team")
    assert done.returncode == 1, done.stderr
    [told] = heard()
    assert "• michael has not sounded like itself since message" in told["text"]
    assert [alarm["agent_id"] for alarm in told["alarms"]] == ["michael"]


def closed_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "is not set"),
        ("S3CRET", "is no http address"),
        ("file:///S3CRET", "is no http address"),
        ("http://[S3CRET", "did not take it (ValueError)"),
        ("http://127.0.0.1/S3CRET\r\nx: y", "did not take it (InvalidURL)"),
        ("http://127.0.0.1:CLOSED/S3CRET", "did not take it (URLError)"),
        ("404", "did not take it (404)"),
        ("500", "did not take it (500)"),
        ("slow", "did not take it (TimeoutError)"),
    ],
)
def test_who_cannot_be_told_is_named_without_the_address(
    url: str, says: str, httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifying, "SECONDS", 0.3)
    if url.isdigit():
        httpserver.expect_request("/S3CRET").respond_with_data("S3CRET", status=int(url))
        url = httpserver.url_for("/S3CRET")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        if url == "slow":
            url = f"http://127.0.0.1:{silent.getsockname()[1]}/S3CRET"
        [told] = notifying.notify(NOTICE, {"PERSONA_ALERT_WEBHOOK_OTHER": url.replace("CLOSED", str(closed_port()))})
    assert told == f"not notified: PERSONA_ALERT_WEBHOOK_OTHER {says}"


@pytest.mark.parametrize("command", [("evaluate",), ("watch", "--once"), ("suite", "run", "x.eval.yaml")], ids=" ".join)
def test_a_name_that_nobody_declared_is_refused_before_anything_is_done(command: tuple[str, ...], cli: Cli) -> None:
    done = cli(*command, "--notify", "voice-taem")
    assert (done.returncode, done.stdout) == (2, "")
    assert "persona.yaml has no alert 'voice-taem'; did you mean 'voice-team'?" in done.stderr


def test_names_become_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONA_ALERT_WEBHOOK_A_B", "http://x")
    assert addresses(["a-b", "C"]) == {"PERSONA_ALERT_WEBHOOK_A_B": "http://x", "PERSONA_ALERT_WEBHOOK_C": ""}
    require_named(["a-b"], ["a-b"])
    with pytest.raises(ConfigError, match=r"alerts: \[c\]"):
        require_named(["c"], [])


NOTICE = Notice(
    "<!channel> fell", ["<http://evil.example|click> & more", *map(str, range(15))], "http://ci/1", {"verdict": "fell"}
)


def sent(url: str, monkeypatch: pytest.MonkeyPatch, notice: Notice = NOTICE) -> dict[str, Any]:
    """What would be posted to a server outside."""
    posted = []

    class Answer:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    def open_url(request: Any, timeout: float) -> Answer:
        posted.append((request.full_url, timeout, json.loads(request.data)))
        return Answer()

    monkeypatch.setattr("urllib.request.urlopen", open_url)
    post(url, notice)
    [(asked, timeout, data)] = posted
    assert (asked, timeout) == (url, 10)
    return data


HOSTS = ["hooks.slack.com", "chat.googleapis.com", "discord.com", "chat.example", "notlogic.azure.com.evil.example"]


@pytest.mark.parametrize("host", HOSTS)
def test_foreign_text_addresses_no_channel_and_makes_no_link(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = sent(f"https://{host}/x", monkeypatch)
    assert "<" not in data["text"] and "&lt;!channel&gt; fell" in data["text"]
    assert data["text"].endswith("and 6 more\nhttp://ci/1")
    assert (data.get("verdict") == "fell") is host.endswith("example"), "they refuse what they do not know"


def test_teams_gets_a_card_in_which_nothing_is_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    data = sent("https://prod-1.westeurope.logic.azure.com:443/workflows/x", monkeypatch)
    [card] = [item["content"] for item in data["attachments"]]
    assert (data["type"], card["type"]) == ("message", "AdaptiveCard")
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert card["body"][0]["inlines"] == [{"type": "TextRun", "text": "<!channel> fell"}]


def test_in_ci_a_report_is_told_and_so_is_that_there_is_none(
    cli: Cli, sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    heard: Callable[[], list[dict[str, Any]]],
) -> None:  # fmt: skip
    for name, value in {"SERVER_URL": "https://git.example", "REPOSITORY": "o/r", "RUN_ID": "7"}.items():
        monkeypatch.setenv(f"GITHUB_{name}", value)
    report = tmp_path / "report.json"
    assert cli("evaluate", "--agents", "michael", "--output", str(report)).returncode == 1
    assert main([str(report), "--to", "voice-team", "--world", str(sample_root)]) == 0
    assert main([str(tmp_path / "none.json"), "--to", "voice-team,other", "--world", str(sample_root)]) == 0
    drifted, missing = (told["text"] for told in heard())
    assert drifted.splitlines()[0] == "*Persona evaluation: 1 drifted; dwight, jim, pam left out*"
    assert drifted.endswith("\nhttps://git.example/o/r/actions/runs/7")
    assert missing.startswith("*Persona evaluation: it ended without a report*")
    assert "PERSONA_ALERT_WEBHOOK_OTHER is not set" in capsys.readouterr().err
    assert main([str(report), "--to", "nobody", "--world", str(sample_root)]) == 2
