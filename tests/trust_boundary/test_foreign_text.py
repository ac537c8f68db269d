"""Foreign text that cannot be stored: cleaned where it enters, healed where earlier releases kept it, and never written."""

import asyncio
import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, damage, open_store, upsert
from persona_pipeline.base.documents.json import canonical_json, json_line
from persona_pipeline.base.settings import Settings
from persona_pipeline.base.text import calm_cell, plain_cell, shown_json, storable, storable_data
from persona_pipeline.cli import machine_failure
from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.claims import PROMPT_VERSION
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings.line import parse_line, signature_of
from persona_pipeline.judging.recordings.replay import RecordedBackend, load_recordings
from persona_pipeline.judging.recordings.writing import RecordingWriter
from persona_pipeline.judging.verdict import Answer, Evidence, Question, Verdict
from persona_pipeline.reporting.html import page_html
from persona_pipeline.reporting.page import Page, Quote
from persona_pipeline.suites.answering.output import Output, OutputError, parse_output
from persona_pipeline.suites.format.text import parse_json
from tests.support.command_line import in_process
from tests.support.judging import LINES, request, requests

CASE = Path(__file__).parent / "cases" / "judge-reason-half-emoji" / "adherence.jsonl"
POISON = ["half \ud83d", "nul \x00", "low \ude00 first", "turned \ude00\ud83d", "many " + "\x00\udfff" * 50]
# What JSON and Python's own strings can hold, the characters that no file or database can among them.
ANY = st.text(st.characters(exclude_categories=()) | st.sampled_from("\x00\ud83d\ude00\\u"), max_size=20)
SECRET = b"what only CI knows"


def is_kept(text: str) -> bool:
    """Whether a file or a database can hold the text."""
    return storable(text) == text


def poisoned(path: Path, text: str, secret: bytes | None = None) -> str:
    """Put a text into every field of a recorded judge's words, as earlier releases wrote it, and return the line."""
    line = json.loads(path.read_text("utf-8"))
    # A verdict of whose quotes none is found does not count.
    quotes = [{"message": "m1", "quote": LINES[0]}, {"message": "m1", "quote": text}]
    line |= {"reasoning": text, "evidence": quotes, "ideas": [text]}
    if secret:
        line["signature"] = signature_of(line, secret)
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    return path.read_text("utf-8")


def recorded(folder: Path, secret: bytes | None = None) -> Path:
    RecordingWriter(folder, secret=secret).record([request(lists_ideas=True)], [Verdict("cheerful", score=7)])
    return next(folder.rglob("*.jsonl"))


def replayed(folder: Path, secret: bytes | None = None) -> Verdict:
    settings = Settings(recordings_secret=SecretStr(secret.decode()) if secret else None)
    judge = OpenedJudge(RecordedBackend(folder, settings=settings))
    return asyncio.run(judge.judge([request(lists_ideas=True)]))[0]


def test_the_field_case_is_judged_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "w"
    run = in_process(root, monkeypatch, capsys)
    assert run("init", str(root), "--yes").returncode == 0
    path = root / "recordings" / "otto" / "adherence.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(CASE, path)
    for _ in range(2):
        done = run("evaluate", "--agents", "otto", "--dimensions", "adherence", "--output", str(tmp_path / "r.json"))
        assert "store is" not in done.stderr and "Traceback" not in done.stderr, done.stderr
        assert "move" not in done.stderr
        report = (tmp_path / "r.json").read_text("utf-8")
        assert is_kept(json.dumps(json.loads(report), ensure_ascii=False))
        assert "Half an emoji \\ufffd" in report or "Half an emoji \ufffd" in report
    assert damage() is None


@pytest.mark.parametrize("text", POISON, ids=ascii)
def test_a_poisoned_recording_heals_when_it_is_read(text: str, tmp_path: Path) -> None:
    path = recorded(tmp_path)
    before = load_recordings(tmp_path, None)
    poisoned(path, text)
    healed = replayed(tmp_path)
    assert (healed.score, healed.reasoning, healed.ideas) == (7, storable(text), (storable(text),))
    assert [item.quote for item in healed.evidence] == [LINES[0], storable(text)]
    assert load_recordings(tmp_path, None).keys() == before.keys()


@pytest.mark.parametrize("text", POISON, ids=ascii)
def test_a_signed_recording_heals_and_stays_signed(text: str, tmp_path: Path) -> None:
    poisoned(recorded(tmp_path, SECRET), text, SECRET)
    assert replayed(tmp_path, SECRET).reasoning == storable(text)
    RecordingWriter(tmp_path, secret=SECRET).record([requests(1)[0]], [Verdict("habit_0", score=1)])
    assert replayed(tmp_path, SECRET).reasoning == storable(text)
    assert all(is_kept(json.dumps(json.loads(line), ensure_ascii=False)) for line in lines_of(tmp_path))


def lines_of(folder: Path) -> list[str]:
    return [line for path in folder.rglob("*.jsonl") for line in path.read_text("utf-8").split("\n") if line]


@given(reason=ANY, quote=ANY, idea=ANY, detail=ANY)
def test_no_recording_is_written_with_it_and_every_line_is_read(
    reason: str, quote: str, idea: str, detail: str
) -> None:
    said = Verdict("cheerful", score=3, reasoning=reason, evidence=(Evidence(None, quote),), ideas=(idea,))
    question = Question("rubric", {"a": 1}, "label", "s", "e", "ask", {"type": "object"}, 9)
    with TemporaryDirectory() as folder:
        writer = RecordingWriter(Path(folder))
        writer.record([request(lists_ideas=True)], [said])
        writer.record_answers([question], [Answer({"reason": reason, idea: [detail]})])
        for line in lines_of(Path(folder)):
            assert is_kept(json.dumps(json.loads(line), ensure_ascii=False))
            assert parse_line(line).proper_key
        assert replayed(Path(folder)).reasoning == storable(reason)


@given(text=ANY)
def test_no_export_is_written_with_it(text: str) -> None:
    data = {text: [text]}
    assert json.loads(json_line(data)) == json.loads(shown_json(data)) == storable_data(data)
    assert is_kept(calm_cell(text)) and plain_cell(calm_cell(text)) == storable(text)
    page_html(Page(text, [Quote(text, "m", True)])).encode("utf-8")


@given(text=ANY)
def test_what_a_target_or_a_program_of_a_suite_answers_is_cleaned(text: str) -> None:
    # A call without a name is refused.
    call = {"tool": f"t{text}", "input": {text: text}}
    for given_answer in (text, [{"role": "assistant", "content": text, "tool_calls": [call]}], {"text": text}):
        found = parse_output(given_answer)
        assert is_kept(found.text) and is_kept(shown_json(found.messages))
        assert found.messages == storable_data(found.messages)
    assert is_kept(str(parse_json(json.dumps([text]))))


def test_an_answer_that_is_nested_too_deeply_is_refused_by_name() -> None:
    deep: Any = "end"
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(OutputError, match="nested too deeply"):
        Output([{"role": "assistant", "content": deep}])


@pytest.mark.parametrize("text", POISON, ids=ascii)
def test_the_store_keeps_no_such_text_and_finds_what_it_kept(store: Store, text: str) -> None:
    with store.begin() as connection:
        upsert(connection, tables.agents, [{"id": text, "display_name": text}])
        upsert(connection, tables.remembered, [{"name": text, "value": {text: [text]}}])
    row = store.row(sa.select(tables.agents).where(tables.agents.c.id == text))
    assert row is not None and (row.id, row.display_name) == (storable(text), storable(text))
    kept = store.value(sa.select(tables.remembered.c.value).where(tables.remembered.c.name == text))
    assert kept == storable_data({text: [text]})


@pytest.mark.parametrize("text", POISON, ids=ascii)
def test_an_answer_that_an_earlier_release_kept_heals_when_it_is_read(store: Store, text: str) -> None:
    packed = canonical_json({"reason": text})
    answer = {"json": packed, "sha256": hashlib.sha256(packed.encode("ascii")).hexdigest()}
    row = {"key": "k", "subject_key": "k", "kind": "gate", "model": "m", "prompt_version": PROMPT_VERSION}
    with store.begin() as connection:
        upsert(connection, tables.judgments, [{**row, "answer": answer}])
    assert [kept.data for _, kept in JudgmentCache(store).answers(["k"])] == [{"reason": storable(text)}]


def failing(make: Callable[[], object]) -> str | None:
    try:
        make()
    except Exception as error:
        return machine_failure(error)
    raise AssertionError("nothing failed")


def test_a_python_exception_calls_no_store_damaged(tmp_path: Path) -> None:
    with closing(open_store(f"sqlite:///{tmp_path / 'store.db'}")) as store:

        def read(value: str) -> None:
            with store.begin() as connection:
                connection.execute(sa.text("INSERT INTO remembered (name, value) VALUES ('a', :v)"), {"v": value})
                connection.execute(sa.select(tables.remembered.c.value)).all()

        def write() -> None:
            with store.begin() as connection:
                connection.exec_driver_sql("SELECT ?", (2**70,))

        def moment() -> None:
            with store.begin() as connection:
                connection.execute(sa.text("INSERT INTO channels (id, created_at) VALUES ('a', '20z6-01-01')"))
                connection.execute(sa.select(tables.channels.c.created_at)).all()

        for make in (lambda: read("{"), write, moment):
            said = failing(make)
            assert said is None or ("damaged" not in said and "move" not in said and "\n" not in said), said
        assert damage() is None


@pytest.mark.parametrize("size", [0, 100, 4096])
def test_sqlites_own_check_calls_a_store_damaged(size: int, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.ping()
    content = path.read_bytes()
    path.write_bytes(b"x" * 100 + content[100:] if size == 0 else content[:size])
    for left in tmp_path.glob("store.db-*"):
        left.unlink()
    found = damage()
    assert found is not None and str(path) in found and "\n" not in found
