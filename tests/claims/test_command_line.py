"""The commands as a user runs them: what stands on which stream, and how they end."""

import json
import re
import sys
from html import unescape
from pathlib import Path

import pytest

from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli import main
from tests.claims.test_drafts import OLD, answering, claim
from tests.claims.test_trial import honest, write_claims
from tests.support.messages_server import MessagesServer, message

TEST = ("propositions", "test", "michael", "--as-of", "2026-06-14T23:59:59Z")
EVIL = "<script>alert(1)</script> | `x` [y](http://z) \x1b[31m"


@pytest.fixture(autouse=True)
def _in_the_sample_world(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONA_ROOT", str(sample_root))


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["persona-pipeline", *arguments])
        get_settings.cache_clear()
        main()
    return int(ended.value.code or 0)


def test_a_live_test_says_what_it_will_cost_then_what_was_found_and_what_it_cost(
    sample_root: Path, server: MessagesServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.handler = honest
    write_claims(sample_root, {"adherence": {"loud": {}, "dead": {}}})
    assert run(*TEST, "--judge", "anthropic", "--samples", "2", "--estimate") == 0
    estimated = capsys.readouterr().out
    assert estimated.startswith("28 calls to claude-haiku-5-5")
    assert server.paid == 0
    assert run(*TEST, "--judge", "anthropic", "--samples", "2", "--record") == 0
    told = capsys.readouterr()
    assert told.err.startswith(estimated)
    lines = told.out.splitlines()
    loud = next(line.split() for line in lines if line.startswith("adherence/loud"))
    assert loud[2].endswith("*") and not loud[4].endswith("*")
    assert all(f"blind spot: no claim catches {fault}." in told.out for fault in ("wrong_facts", "repetition"))
    assert "never fails: adherence/dead stands at 9.0 and drops under none of 6 faults" in lines
    assert "holds of everybody: adherence/dead: 9.0 of its own words, 9.0 of another agent's" in lines
    assert lines[-1].startswith("34 judge calls, $0.")
    assert run(*TEST, "--mock-judge", "--samples", "2", "--format", "json") == 0
    replayed = json.loads(capsys.readouterr().out)
    assert replayed["kills"] == {"adherence/loud": ["boilerplate", "borrowed", "flattened"], "adherence/dead": []}
    assert replayed["usage"]["calls"] == 0


def test_what_was_never_recorded_is_code_3_and_costs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*TEST, "--dimension", "fluency", "--samples", "1", "--faults", "repetition") == 3
    told = capsys.readouterr().out
    assert "Not judged: 3 unrecorded" in told
    assert "No judge call was made." in told


def test_a_page_holds_whatever_stands_in_a_claim(
    sample_root: Path, server: MessagesServer, capsys: pytest.CaptureFixture[str]
) -> None:
    write_claims(sample_root, {"adherence": {EVIL: {}}})
    asked = (*TEST, "--judge", "anthropic", "--samples", "1", "--faults", "boilerplate,borrowed", "--format")
    page = sample_root / "page.html"
    run(*asked, "html", "--output", str(page))
    html = page.read_text(encoding="utf-8")
    assert "<script" not in html and "&lt;script&gt;" in html
    assert "default-src 'none'; style-src 'sha256-" in unescape(html)
    capsys.readouterr()
    run(*asked, "markdown")
    markdown = capsys.readouterr().out
    assert "<script>" not in markdown and not re.search(r"(?<!\\)\]\(http", re.sub(r"`[^`]*`", "", markdown))
    cells = [line.replace("\\|", "").count("|") for line in markdown.splitlines() if line.startswith("|")]
    assert set(cells[:3]) == {5}, "a pipe in a claim cuts no row"
    run(*asked, "table")
    assert "\x1b" not in capsys.readouterr().out
    assert run(*asked, "docx") == 2


def test_drafts_say_what_they_cost_and_what_was_left_out(
    sample_root: Path, server: MessagesServer, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "Good morning, Marlow Paper family!"
    server.handler = answering(claim(said), claim(OLD, claim="{{agent_name}} made this up"))
    assert run("propositions", "draft", "michael", "--estimate") == 0
    assert capsys.readouterr().out.startswith("1 call to claude-haiku-5-5")
    drafts = [line for line in server.calls if line]
    assert run("propositions", "draft", "michael") == 0
    told = capsys.readouterr()
    assert told.out.startswith("1 claim written, please review: ")
    assert "1 judge call, $0." in told.err
    assert "dropped: '{{agent_name}} made this up': none of its quotes" in told.err
    assert len(server.calls) == len(drafts) + 1
    assert run("propositions", "draft", "michael") == 2
    assert "is not overwritten" in capsys.readouterr().err
    server.always(message("babble"))
    assert run("propositions", "draft", "michael", "--dimension", "fluency") == 3
    assert run("propositions", "draft", "michael", "--dimension", "fluency", "--max-usd", "0.0000001") == 4
    assert run("personas", "draft", "michael") == 2
    assert "add --from-messages" in capsys.readouterr().err
    sentence = {"evidence": claim(said)["evidence"], "part": "who", "sentence": "It greets the family."}
    server.always(None)
    server.handler = answering(sentence, key="sentences")
    assert run("personas", "draft", "michael", "--from-messages") == 0
    assert (sample_root / "personas" / "michael.draft.yaml").is_file()
    assert run("validate") == 0
    assert "is a draft" in capsys.readouterr().err
