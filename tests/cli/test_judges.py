"""Who judges, as it is chosen on the command line and in the environment, against real servers."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from persona_pipeline.base.settings import get_settings
from tests.support.command_line import in_process
from tests.support.messages_server import MessagesServer
from tests.support.protocols import BEARER

EVALUATE = ("evaluate", "--window", "all", "--dimensions", "fluency", "--only-fail-on", "none")
Run = Callable[..., tuple[int, dict, str]]


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch, small_root: Path) -> Iterator[MessagesServer]:
    """A chat completions server to which the environment points."""
    with MessagesServer(protocol="openai") as running:
        values = {"OPENAI_BASE_URL": running.url, "OPENAI_API_KEY": BEARER, "PERSONA_JUDGE_MODEL": "gpt-5-mini"}
        for name, value in {**values, "PERSONA_ROOT": str(small_root)}.items():
            monkeypatch.setenv(name, value)
        get_settings.cache_clear()
        yield running
    assert running.problems == []


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command; the code, the report, and all that is said."""
    cli = in_process(None, monkeypatch, capsys)

    def run(*arguments: str) -> tuple[int, dict, str]:
        done = cli(*arguments)
        report = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        return done.returncode, report, done.stdout + done.stderr

    return run


def test_a_provider_is_chosen_by_name_or_setting_and_stands_in_provenance(
    chat: MessagesServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, report, text = run(*EVALUATE, "--judge", "openai", "--max-usd", "1")
    assert code == 0, text
    assert report["provenance"]["judge"] == "openai:gpt-5-mini"
    assert report["usage"]["usd"] > 0
    paid = chat.paid
    assert paid > 0
    monkeypatch.setenv("PERSONA_JUDGE", "openai")
    code, report, text = run(*EVALUATE)
    assert (code, chat.paid) == (0, paid), "the store had it"
    assert report["provenance"]["judge"] == "openai:gpt-5-mini"
    assert run(*EVALUATE, "--mock-judge")[1]["provenance"]["judge"] == "recorded"


def test_grouping_asks_fewer_calls(
    chat: MessagesServer, small_root: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = small_root / "propositions" / "fluency" / "_default.yaml"
    data = json.loads(path.read_text(encoding="utf-8"))
    data["propositions"] += [{"id": f"more-{n}", "claim": f"Does thing {n}"} for n in range(5)]
    path.write_text(json.dumps(data), encoding="utf-8")
    asked = (*EVALUATE, "--judge", "openai", "--fresh")
    calls = []
    for more in ((), ("--grouping", "3")):
        code, report, text = run(*asked, *more)
        assert code == 0, text
        calls.append(report["usage"]["calls"])
    assert report["provenance"]["judge"] == "openai:gpt-5-mini grouped by 3"
    assert calls == [12, 4]
    monkeypatch.setenv("PERSONA_JUDGE_GROUPING", "6")
    assert run(*asked)[1]["usage"]["calls"] == 2
    assert "2 calls to gpt-5-mini" in run(*asked, "--estimate")[2]


def test_a_judge_nobody_offers_is_named_with_the_nearest(
    small_root: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSONA_ROOT", str(small_root))
    code, _, text = run("evaluate", "--judge", "opnai")
    assert code == 2
    assert "unknown judge 'opnai'; did you mean 'openai'?" in text


def test_a_price_that_is_set_is_what_the_run_reports(
    chat: MessagesServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = (*EVALUATE, "--judge", "openai", "--max-usd", "1")
    monkeypatch.setenv("PERSONA_JUDGE_MODEL", "qwen3:32b")
    code, _, text = run(*asked)
    assert code == 2
    assert "no price is known for judge model 'qwen3:32b'" in text
    assert "PERSONA_JUDGE_PRICES" in text
    monkeypatch.setenv("PERSONA_JUDGE_PRICES", "qwen3:32b=1/2")
    code, report, text = run(*asked)
    assert code == 0, text
    used = chat.usage
    assert report["usage"]["usd"] == pytest.approx((used["input_tokens"] + 2 * used["output_tokens"]) / 1e6)
    assert "$" in run(*asked, "--fresh", "--estimate")[2]
