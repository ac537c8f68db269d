"""Labels of messages: files of this and of earlier releases, exchange with other tools, and agreement with the judge."""

import csv
import io
import shutil
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from persona_pipeline.base.documents.json import json_line, json_object
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli.app import app
from persona_pipeline.guard.labels.files import LABELS, checked_label, load_labels
from persona_pipeline.guard.labels.messages import (
    MarkSource,
    MessageLabel,
    load_message_labels,
    majority,
    message_label,
    read_labels,
    write_message_labels,
)
from persona_pipeline.scoring.messages.verdicts import MessageVerdict, Role
from persona_pipeline.world.models import Message
from tests.support import pull_requests
from tests.support.judging import request
from tests.support.labels import label_of, write_labels
from tests.support.worlds import PROJECT

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
IN, OUT, UNCLEAR = Role.IN, Role.OUT, Role.UNCLEAR


def said(name: str, text: str = "Arr.") -> Message:
    return Message(name, "ann", text, START, "deck")


def label(
    name: str, verdict: Role, by: str = "ada", source: MarkSource = MarkSource.PERSON, **more: Any
) -> MessageLabel:
    return message_label(said(name), verdict, by, source, **more)


GIVEN = tuple(label(f"m{number}", verdict, note='=a, "b"') for number, verdict in enumerate(Role))


def former(item: MessageLabel, chosen: str = "given") -> dict[str, Any]:
    """Return a label as release 0.2 wrote it."""
    data = json_object(item.to_line())
    verdict = data.pop("verdict")
    return {**data, "on": verdict == "in", "chosen": chosen}


def test_the_last_answer_of_a_labeller_replaces_and_the_rest_stays_in_order(tmp_path: Path) -> None:
    judged, path = label_of(request(), 7, labeller="ada"), tmp_path / "messages.jsonl"
    write_labels(tmp_path, [judged])
    first, second, other = label("m1", IN), label("m2", UNCLEAR, note="It never came up."), label("m1", OUT, "bob")
    assert write_message_labels(tmp_path, [other, second, first]) == [path]
    changed = label("m1", OUT)
    for written in ([path], []):
        assert write_message_labels(tmp_path, [changed]) == written
        assert load_message_labels(tmp_path) == [changed, other, second]
    write_message_labels(tmp_path, [], remove=[changed.identity])
    assert load_message_labels(tmp_path) == [other, second]
    assert write_message_labels(tmp_path, [], remove=[other.identity, second.identity]) == [path]
    assert not path.exists() and write_message_labels(tmp_path, []) == []
    assert load_labels(tmp_path) == [judged], "labels of judgments are in other files of the folder"


def test_git_merges_what_two_people_labelled_on_two_machines(tmp_path: Path) -> None:
    git = partial(pull_requests.git, tmp_path)
    template = PROJECT / "persona_pipeline" / "world" / "template" / "gitattributes"
    git("init", "--initial-branch=main")
    shutil.copy(template, tmp_path / ".gitattributes")
    write_message_labels(tmp_path / "labels", [label("m0", IN, "eve")])
    git("add", ".gitattributes", "labels/messages.jsonl")
    git("commit", "-m", "one")
    for labeller in ("ada", "bob"):
        git("checkout", "-b", labeller, "main")
        write_message_labels(tmp_path / "labels", [label(f"m{number}", IN, labeller) for number in range(4)])
        git("commit", "-a", "-m", labeller)
    git("merge", "ada")
    assert len(load_message_labels(tmp_path / "labels")) == 9


def _label_many(folder: str, labeller: str) -> None:
    for number in range(15):
        write_message_labels(Path(folder), [label(f"m{number}", IN, labeller)])


def test_two_who_write_at_once_lose_nothing(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        list(pool.map(_label_many, [str(tmp_path)] * 2, ["ada", "bob"]))
    labels = load_message_labels(tmp_path)
    assert len(labels) == 30
    assert {item.labeller for item in labels} == {"ada", "bob"}


def test_a_file_of_an_earlier_release_is_read_and_moves_when_a_label_is_written(tmp_path: Path) -> None:
    folder = tmp_path / LABELS
    folder.mkdir()
    old, new = folder / "voice.jsonl", folder / "messages.jsonl"
    labels = [label("m1", IN), label("m2", OUT)]
    old.write_text("".join(json_line(former(item, "uncertain")) for item in labels), encoding="utf-8")
    assert load_message_labels(folder) == labels
    assert load_labels(folder) == []
    assert CliRunner().invoke(app, ["validate", str(old)]).exit_code == 0
    assert write_message_labels(folder, [label("m3", UNCLEAR)]) == [new, old]
    assert not old.exists()
    moved = [(item.message, item.verdict) for item in load_message_labels(folder)]
    assert moved == [("m1", IN), ("m2", OUT), ("m3", UNCLEAR)]


def test_both_files_after_a_merge_are_one(tmp_path: Path) -> None:
    write_message_labels(tmp_path, [label("m3", IN), GIVEN[1]])
    old = tmp_path / "voice.jsonl"
    old.write_text(json_line(former(GIVEN[1])), encoding="utf-8")
    assert len(load_message_labels(tmp_path)) == 2
    old.write_text(json_line({**former(GIVEN[1]), "on": True}), encoding="utf-8")
    says = r"voice.jsonl:1: ada has labelled this message otherwise at .*messages.jsonl:1"
    with pytest.raises(ConfigError, match=says):
        load_message_labels(tmp_path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"text": "Another text."}, "its key is not that of agent, message and text"),
        ({"agent_id": "bob"}, "its key is not that of agent, message and text"),
        ({"verdict": "yes"}, "verdict: "),
        ({"on": True}, "unknown key 'on'"),
        ({"source": "guess"}, "source: "),
        ({"labeller": "a b"}, "labeller: "),
        ({"labelled_at": "soon"}, "labelled_at: "),
        ({"stars": 4}, "unknown key 'stars'"),
    ],
)
def test_a_line_that_is_not_a_label_is_named(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        checked_label(MessageLabel, {**json_object(GIVEN[0].to_line()), **changes})


@pytest.mark.parametrize(
    ("column", "cell", "verdict"),
    [("verdict", "Out", OUT), ("verdict", "unclear", UNCLEAR), ("on", "Off", OUT), ("on", "true", IN)],
)
def test_a_spreadsheet_needs_no_key(column: str, cell: str, verdict: Role, tmp_path: Path) -> None:
    rows = {
        **{"agent_id": "ann", "message": "m1", "conversation": "c", "said_at": "2026-01-01T00:00:00Z", "text": "Arr."},
        **{column: cell, "source": "stars", "rating": "2", "labeller": "ada", "labelled_at": "2026-01-02T00:00:00Z"},
    }
    text = io.StringIO(newline="")
    csv.writer(text).writerows([rows.keys(), rows.values()])
    path = tmp_path / "labels.csv"
    path.write_text(text.getvalue(), encoding="utf-8")
    (found,) = read_labels(path, {})
    assert (found.verdict, found.rating) == (verdict, 2.0)


@pytest.mark.parametrize("option", ["--messages", "--voice"])
def test_labels_of_messages_from_the_shell(
    option: str, small_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSONA_ROOT", str(small_root))
    get_settings.cache_clear()
    kept, path = small_root / LABELS / "messages.jsonl", tmp_path / "messages.csv"
    write_message_labels(kept.parent, GIVEN)
    run = CliRunner().invoke
    assert [line.split()[2] for line in run(app, ["labels", "list", option]).stdout.splitlines()] == list(Role)
    assert run(app, ["labels", "export", option, "--output", str(path)]).exit_code == 0
    before = kept.read_bytes()
    kept.unlink()
    assert run(app, ["labels", "import", option, str(path)]).exit_code == 0
    assert kept.read_bytes() == before
    assert run(app, ["validate", str(kept)]).exit_code == 0


def verdicts(*found: Role) -> list[MessageVerdict]:
    return [
        MessageVerdict(message=f"m{number}", conversation="deck", said_at=START, verdict=verdict)
        for number, verdict in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("labels", "verdict"),
    [
        pytest.param([("ada", IN)], IN, id="one"),
        pytest.param([("ada", IN), ("bob", OUT), ("eva", OUT)], OUT, id="most"),
        pytest.param([("ada", IN), ("bob", OUT)], UNCLEAR, id="a tie"),
        pytest.param([("ada", IN), ("bob", UNCLEAR)], UNCLEAR, id="a tie with unclear"),
        pytest.param([("ada", IN), ("ada", OUT)], OUT, id="the newest of a person"),
        pytest.param([], UNCLEAR, id="no label"),
    ],
)
def test_the_majority_of_several_labellers_counts(labels: list[tuple[str, Role]], verdict: Role) -> None:
    given = [
        label("m0", role, by, text=f"version {n}", labelled_at=f"2026-01-0{n + 1}T00:00:00Z")
        for n, (by, role) in enumerate(labels)
    ]
    assert majority(given) == majority(given[::-1]) == verdict
