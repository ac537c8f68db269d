"""A store that is damaged, tables for spreadsheets, and text of others wherever it is printed."""

import random
import shutil
import sqlite3
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest

from persona_pipeline.base.text import calm_cell, plain_cell, printable, shown_json
from persona_pipeline.cli import EXIT_MACHINE, evaluate, main
from persona_pipeline.guard.labels.messages import MarkSource, export_labels, message_label
from persona_pipeline.reporting.html import page_html
from persona_pipeline.reporting.page import Page, Quote
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.world.models import Message
from persona_pipeline.world.revisions import find_revision, revisions_of
from tests.support.worlds import copy_sample

UNSHOWN = "\x9b31m\u202eevil\u2066\x1e\x07\u200f"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr("sys.argv", ["persona-pipeline", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample world with a store that holds an evaluation, in one file."""
    root = copy_sample(tmp_path_factory.mktemp("stored") / "world")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERSONA_ROOT", str(root))
        assert run(patch, "evaluate", "--judge", "recorded") == 1, "one of the sample world has drifted"
    connection = sqlite3.connect(root / ".persona" / "store.db")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    for left in (root / ".persona").glob("store.db-*"):
        left.unlink()
    return root


# What is damaged there is not asked for by every command.
MAY_BE_READ = ("the schema", "JSON", "times", "UTF-8", *(f"holes {number}" for number in range(6)))


def damaged(store: bytes) -> dict[str, bytes]:
    """Return stores as crashes, disks and people leave them."""
    dice = random.Random(29)
    found = {
        "text": b"hello world" * 1000,
        "half": store[: len(store) // 2],
        "one page": store[:4096],
        "no page": store[:5000],
        "the last page": store[:-4096],
        "the head": b"x" * 100 + store[100:],
        "the schema": store[:3000] + dice.randbytes(1000) + store[4000:],
        "JSON": store.replace(b'"agent_id":', b'"agent_id";'),
        "times": store.replace(b"2026-", b"20z6-"),
        "UTF-8": store.replace(b'"agent_id"', b'"agent\xff\xfe"'),
    }
    for number in range(6):
        torn = bytearray(store)
        for _ in range(60):
            at = dice.randrange(100, len(torn) - 200)
            torn[at : at + 200] = dice.randbytes(200)
        found[f"holes {number}"] = bytes(torn)
    return found


def test_26_a_damaged_store_is_one_line_and_no_drop(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = shutil.copytree(stored, tmp_path / "world")
    store = root / ".persona" / "store.db"
    monkeypatch.setenv("PERSONA_ROOT", str(root))
    for name, content in damaged(store.read_bytes()).items():
        for command in (("evaluate", "--judge", "recorded"), ("report", "--format", "json")):
            for left in store.parent.glob("store.db*"):
                left.unlink()
            store.write_bytes(content)
            code = run(monkeypatch, *command)
            said = capsys.readouterr().err.strip()
            assert "Traceback" not in said, f"{name}: {said[-1500:]}"
            if code != EXIT_MACHINE and name in MAY_BE_READ:
                continue
            assert code == EXIT_MACHINE, f"{name}, {command[0]}: {code} {said[-300:]}"
            assert "put a backup of it in its place" in said.splitlines()[-1], f"{name}: {said[-300:]}"


def test_26_a_mistake_in_the_program_is_no_drop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("persona_pipeline.cli.world.setup.environment", lambda: 1 / 0)
    assert run(monkeypatch, "validate") == EXIT_MACHINE
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    ["=HYPERLINK(1)", "+1", "-1", "@SUM(1)", "\t=1", "'=1", "plain", "a\n=1", "\\u0041 \\u009b \\u005c", UNSHOWN],
)
def test_27_no_cell_is_a_formula(text: str) -> None:
    cell = calm_cell(text)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert plain_cell(cell) == text


def test_27_report_writes_no_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"claim": ["=HYPERLINK(1)", None], "delta": [-1.5, 2.0]})
    monkeypatch.setattr("persona_pipeline.api.frames.report_frame", lambda run, by: frame)
    text = evaluate._table(None, "claim", "csv")
    assert text == "claim,delta\n'=HYPERLINK(1),-1.5\n,2.0\n"


def unshown(text: str) -> list[str]:
    return [letter for letter in text if letter != "\n" and printable(letter) != letter]


def test_29_a_commits_subject_may_hold_anything(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / "a").write_text("a")
    git("add", "a")
    subject = f"odd \x1e \x1f subject {UNSHOWN}"
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", subject)
    found = find_revision(tmp_path, "HEAD")
    assert "odd" in found.subject and not unshown(found.subject)
    assert [item.id for item in revisions_of(tmp_path, ["a"], 5)] == [found.id]


def test_29_text_of_others_is_cleaned_wherever_it_is_printed(
    sample_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERSONA_ROOT", str(sample_root))
    path = sample_root / "propositions" / "adherence" / "michael.yaml"
    text = path.read_text("utf-8")
    claim = '"{{agent_name}} \\u009b31m says \\u202eit\\u2066 out loud"'
    path.write_text(text + f"  - id: odd_one\n    claim: {claim}\n", "utf-8")
    for more in ((), ("--json",)):
        run(monkeypatch, "propositions", "show", "michael", "--dimension", "adherence", *more)
        said = capsys.readouterr()
        assert "odd_one" in said.out, said.err
        assert not unshown(said.out) and not unshown(said.err)
    (sample_root / "personas" / "odd.yaml").write_text('"a\\u202eb": 1\n', "utf-8")
    run(monkeypatch, "validate")
    said = capsys.readouterr()
    assert "odd.yaml" in said.err and not unshown(said.err)


def test_29_labels_and_json_carry_it_as_escapes() -> None:
    assert unshown(shown_json({"a": UNSHOWN})) == []
    assert shown_json({"a": "ä 日本"}) == '{"a": "ä 日本"}'
    message = Message("m1", "ann", "Hm.", datetime(2026, 3, 2, tzinfo=UTC), "deck")
    label = message_label(message, Role.IN, "ada", MarkSource.PERSON, note=f"odd {UNSHOWN}")
    for format in ("csv", "jsonl"):
        assert unshown(export_labels([label], format).replace("\r\n", "\n")) == []


def test_29_a_page_of_html_holds_none_of_it() -> None:
    page = Page(f"title {UNSHOWN}", [Quote(f"text {UNSHOWN}", "m", True)])
    assert unshown(page_html(page)) == []
