"""A misspelt name, from the command that says it first to the one that takes it out, on a real store."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import Cli, Done, in_process
from tests.support.messages_server import MessagesServer
from tests.support.worlds import write_jsonl, write_yaml

MISSPELT = "'Micheal' has 3 messages and no persona; did you mean 'michael'?"
SILENT = "'michael' has a persona and no messages"
PERSON = "without a persona, and so not evaluated: 1 speaker (1 message)"
DAY = "2026-03-10T"


@pytest.fixture
def root(small_root: Path) -> Path:
    """The small world, and a third agent whose messages are exported under another name."""
    write_michael(small_root)
    return small_root


@pytest.fixture
def export(tmp_path: Path) -> Path:
    rows = [
        {"id": f"x{n}", "agent_id": name, "channel": "general", "text": text, "created_at": f"{DAY}1{n}:00:00Z"}
        for n, (name, text) in enumerate(
            [("Micheal", "Who took my mug?"), ("Micheal", "It says boss."), ("visitor", "Hello."), ("Micheal", "Ah.")]
        )
    ]
    return write_jsonl(tmp_path / "export.jsonl", rows)


@pytest.fixture
def cli(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line's own ``main``, in this process, on the world."""
    return in_process(root, monkeypatch, capsys)


def write_michael(root: Path, **more: object) -> None:
    content = {"display_name": "Michael", "persona": "Michael is loud.", **more}
    write_yaml(root / "personas" / "michael.yaml", content)


def findings(done: Done) -> list[str]:
    return [item["message"] for item in json.loads(done.stdout)["findings"] if item["kind"] == "names"]


def test_ingest_says_what_does_not_match_and_an_alias_mends_what_is_stored(cli: Cli, export: Path, root: Path) -> None:
    done = cli("ingest", str(export))
    assert (done.returncode, done.stdout) == (0, "4 added, 0 changed, 0 known, 0 left out\n")
    assert MISSPELT in done.stderr and SILENT in done.stderr and PERSON in done.stderr
    assert 'aliases: ["Micheal"] into personas/michael.yaml' in done.stderr
    assert "--map Micheal=michael" in done.stderr
    write_michael(root, aliases=["micheal"])
    again = cli("ingest", str(export))
    assert again.stdout == "0 added, 3 changed, 1 known, 0 left out\n"
    assert again.stderr == f"{PERSON}\n"
    assert cli("ingest", str(export)).stdout == "0 added, 0 changed, 4 known, 0 left out\n"


def test_map_mends_once(cli: Cli, export: Path) -> None:
    assert cli("ingest", str(export), "--map", "Micheal=michael", "--map", "visitor=bob").stderr == ""
    again = cli("ingest", str(export))
    assert again.stdout == "0 added, 4 changed, 0 known, 0 left out\n", "without --map the file says what it says"
    assert MISSPELT in again.stderr


def test_a_mapping_that_cannot_be_adds_nothing(cli: Cli, export: Path) -> None:
    for given, says in (
        ("Micheal", "write SPEAKER=AGENT"),
        ("=michael", "write SPEAKER=AGENT"),
        ("Micheal=micheal", "there is no personas/micheal.yaml; did you mean 'michael'?"),
        ("Michael=michael", "no message is by 'Michael'; did you mean 'Micheal'?"),
    ):
        done = cli("ingest", str(export), "--map", given)
        assert (done.returncode, says in done.stderr) == (2, True), given
    assert cli("ingest", str(export)).stdout.startswith("4 added")


def test_files_of_the_world_are_looked_at_by_validate_and_doctor(cli: Cli, export: Path, root: Path) -> None:
    (root / "messages" / "export.jsonl").write_bytes(export.read_bytes())
    done = cli("validate")
    assert done.returncode == 0, "a speaker without a persona is nothing wrong"
    assert f"warning: {MISSPELT}" in done.stderr and f"warning: {PERSON}" in done.stderr
    found = {item["name"]: item for item in json.loads(cli("doctor", "--no-calls", "--no-dagster", "--json").stdout)}
    assert found["messages"]["level"] == "note"
    assert MISSPELT in found["messages"]["said"] and SILENT in found["messages"]["said"]
    write_michael(root, aliases=["Micheal", "Bob"])
    assert "michael.yaml:6:3: alias 'Bob' is the id of another agent" in cli("validate").stderr
    broken = cli("doctor", "--no-calls", "--no-dagster")
    assert broken.returncode == 2
    assert "alias 'Bob' is the id of another agent" in broken.stdout
    write_michael(root, aliases=["Micheal"])
    done = cli("validate")
    assert (done.returncode, done.stderr) == (0, f"warning: {PERSON}\n")


def test_evaluate_and_its_estimate_say_it(cli: Cli, export: Path, root: Path, server: MessagesServer) -> None:
    cli("ingest", str(export))
    estimate = cli("evaluate", "--estimate")
    assert (estimate.returncode, server.paid) == (0, 0)
    assert MISSPELT in estimate.stderr and SILENT in estimate.stderr and PERSON in estimate.stderr
    done = cli("evaluate")
    assert findings(done) == [f"{SILENT}; 'Micheal' has 3 messages and no persona: is it 'michael'?"]
    assert PERSON in done.stderr
    assert findings(cli("evaluate", "--agents", "ann")) == []
    assert cli("evaluate", "--only-fail-on", "names").returncode == 3
    write_michael(root, aliases=["Micheal"])
    mended = cli("evaluate", "--only-fail-on", "names")
    assert (mended.returncode, findings(mended)) == (0, [])
    assert json.loads(mended.stdout)["agents"]["michael"]["sample_size"] == 3


def test_messages_are_counted_before_they_are_removed_and_stay_out(cli: Cli, export: Path, root: Path) -> None:
    cli("ingest", str(export))
    text = export.read_bytes()
    remove = ("messages", "remove", "--speaker", "Micheal")
    seen = cli(*remove)
    assert seen.stdout == (
        f"3 messages (Micheal 3), 2026-03-10 10:00 to 2026-03-10 13:00 UTC\n  3 from {export.as_posix()}\n"
    )
    assert "add --yes" in seen.stderr
    assert "3 removed" in cli(*remove, "--yes").stdout
    gone = cli(*remove, "--yes")
    assert (gone.returncode, gone.stdout) == (3, "")
    kept_out = "3 removed before and kept out (--restore brings them back)"
    assert cli("ingest", str(export)).stdout == f"0 added, 0 changed, 1 known, 0 left out, {kept_out}\n"
    assert cli("ingest", str(export), "--restore").stdout == "3 added, 0 changed, 1 known, 0 left out\n"
    assert export.read_bytes() == text


def test_which_messages_are_meant(cli: Cli, export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(export.parent)
    cli("ingest", "export.jsonl")
    for options, count in {
        "--agent ann --agent bob": 8,
        "--id x0 --id m1": 2,
        "--source export.jsonl": 4,
        "--source messages/all.jsonl --agent bob": 3,
        f"--between {DAY}10:00:00Z {DAY}11:00:00Z": 3,
    }.items():
        done = cli("messages", "remove", *options.split())
        assert (done.returncode, done.stdout.partition(" ")[0]) == (0, str(count)), options
    for options, code in {"--between yesterday today": 2, "--agent anne": 3, "": 2}.items():
        done = cli("messages", "remove", *options.split())
        assert (done.returncode, done.stdout) == (code, ""), options
