"""The commands as a user runs them: what stands on which stream, and how they end."""

import json
import re
from html import unescape
from pathlib import Path

from tests.claims.test_drafts import OLD, answering, claim
from tests.claims.test_trial import honest, write_claims
from tests.support.command_line import Cli
from tests.support.messages_server import MessagesServer, message

TEST = ("propositions", "test", "michael", "--as-of", "2026-06-14T23:59:59Z")
EVIL = "<script>alert(1)</script> | `x` [y](http://z) \x1b[31m"


def test_a_live_test_says_what_it_will_cost_then_what_was_found_and_what_it_cost(
    sample_root: Path, server: MessagesServer, cli: Cli
) -> None:
    server.handler = honest
    write_claims(sample_root, {"adherence": {"loud": {}, "dead": {}}})
    estimated = cli(*TEST, "--judge", "anthropic", "--samples", "2", "--estimate")
    assert (estimated.returncode, server.paid) == (0, 0)
    assert estimated.stdout.startswith("24 calls to claude-haiku-5-5")
    told = cli(*TEST, "--judge", "anthropic", "--samples", "2", "--record")
    assert told.returncode == 0 and told.stderr.startswith(estimated.stdout)
    lines = told.stdout.splitlines()
    loud = next(line.split() for line in lines if line.startswith("adherence/loud"))
    assert loud[2].endswith("*") and not loud[4].endswith("*")
    assert all(f"blind spot: no claim catches {fault}." in told.stdout for fault in ("contradiction", "repetition"))
    assert "never fails: adherence/dead stands at 9.0 and drops under none of 5 faults" in lines
    assert "holds of everybody: adherence/dead: 9.0 of its own words, 9.0 of another agent's" in lines
    # Three kills stand alone, and are judged twice more.
    assert lines[-1].startswith("30 judge calls, $0.") and server.paid == 30
    replayed = json.loads(cli(*TEST, "--mock-judge", "--samples", "2", "--format", "json").stdout)
    assert replayed["kills"] == {"adherence/loud": ["boilerplate", "borrowed", "flattened"], "adherence/dead": []}
    assert replayed["usage"]["calls"] == 0 and replayed["models"] == ["claude-haiku-5-5"]


def test_what_was_never_recorded_is_code_3_and_costs_nothing(cli: Cli) -> None:
    told = cli(*TEST, "--dimension", "fluency", "--samples", "1", "--faults", "repetition")
    assert told.returncode == 3
    assert "Not judged: 3 unrecorded" in told.stdout and "No judge call was made." in told.stdout


def test_a_page_holds_whatever_stands_in_a_claim(sample_root: Path, server: MessagesServer, cli: Cli) -> None:
    write_claims(sample_root, {"adherence": {EVIL: {}}})
    asked = (*TEST, "--judge", "anthropic", "--samples", "1", "--faults", "boilerplate,borrowed", "--format")
    page = sample_root / "page.html"
    cli(*asked, "html", "--output", str(page))
    html = page.read_text(encoding="utf-8")
    assert "<script" not in html and "&lt;script&gt;" in html
    assert "default-src 'none'; style-src 'sha256-" in unescape(html)
    markdown = cli(*asked, "markdown").stdout
    assert "<script>" not in markdown and not re.search(r"(?<!\\)\]\(http", re.sub(r"`[^`]*`", "", markdown))
    cells = [line.replace("\\|", "").count("|") for line in markdown.splitlines() if line.startswith("|")]
    assert set(cells[:3]) == {5}, "a pipe in a claim cuts no row"
    assert "\x1b" not in cli(*asked, "table").stdout
    assert cli(*asked, "docx").returncode == 2


def test_drafts_say_what_they_cost_and_what_was_left_out(sample_root: Path, server: MessagesServer, cli: Cli) -> None:
    said = "Good morning, Marlow Paper family!"
    server.handler = answering(claim(said), claim(OLD, claim="{{agent_name}} made this up"))
    draft = ("propositions", "draft", "michael")
    estimated = cli(*draft, "--estimate")
    assert (estimated.returncode, server.paid) == (0, 0)
    assert estimated.stdout.startswith("1 call to claude-haiku-5-5")
    told = cli(*draft)
    assert (told.returncode, server.paid) == (0, 1)
    assert told.stdout.startswith("1 claim written, please review: ")
    assert "1 judge call, $0." in told.stderr
    assert "dropped: '{{agent_name}} made this up': none of its quotes" in told.stderr
    again = cli(*draft)
    assert again.returncode == 2 and "is not overwritten" in again.stderr
    server.always(message("babble"))
    assert cli(*draft, "--dimension", "fluency").returncode == 3
    assert cli(*draft, "--dimension", "fluency", "--max-usd", "0.0000001").returncode == 4
    bare = cli("personas", "draft", "michael")
    assert bare.returncode == 2 and "add --from-messages" in bare.stderr
    sentence = {"evidence": claim(said)["evidence"], "part": "who", "sentence": "It greets the family."}
    server.always(None)
    server.handler = answering(sentence, key="sentences")
    assert cli("personas", "draft", "michael", "--from-messages").returncode == 0
    assert (sample_root / "personas" / "michael.draft.yaml").is_file()
    checked = cli("validate")
    assert checked.returncode == 0 and "is a draft" in checked.stderr
