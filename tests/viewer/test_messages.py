"""Messages as the page lists them, on both databases, beside a filter that is written out."""

import csv
import io
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, timedelta
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from urllib.parse import quote as quoted

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape
from sqlalchemy import event

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.text import plain_cell
from persona_pipeline.guard.labels.files import LABELS
from persona_pipeline.guard.labels.messages import MarkSource, message_label, write_message_labels
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.viewer import messages as listing
from persona_pipeline.viewer.messages import Cursor, MessageFilter, Shown
from persona_pipeline.viewer.pages import marked
from persona_pipeline.viewer.runs import newest_runs
from persona_pipeline.viewer.thumbs import Thumbs
from persona_pipeline.world.messages.store import write_messages
from persona_pipeline.world.models import Message
from persona_pipeline.world.world import World
from tests.conftest import POSTGRES
from tests.viewer.conftest import evaluate_sample, judged_as, write_verdicts
from tests.viewer.serving import client_of, viewing_app


@pytest.fixture(params=["sqlite", POSTGRES])
def anywhere(request: pytest.FixtureRequest, evaluated: Path, tmp_path: Path) -> Iterator[World]:
    """The sample world in a store of each kind."""
    if request.param == "sqlite":
        yield request.getfixturevalue("world")
        return
    world = World.open(shutil.copytree(evaluated, tmp_path / "pg"), request.getfixturevalue("postgres_url"))
    evaluate_sample(world)
    yield world
    world.store.close()


def ids(text: str) -> list[str]:
    """Return the messages of a page, in its order."""
    return [unescape(found) for found in re.findall(r'<a class="open" href="/message\?id=[^"]*"><code>([^<]*)', text)]


def walked(client: TestClient, address: str, rel: str = "next") -> list[list[str]]:
    """Return the pages of a list, as far as it can be turned over."""
    pages = []
    while address and len(pages) < 50:
        response = client.get(address)
        assert response.status_code == 200, response.text
        pages.append(ids(response.text))
        found = re.search(rf'<a rel="{rel}" href="([^"]*)"', response.text)
        address = unescape(found[1]) if found else ""
    return pages


def read(world: World, query: str) -> list[list[str]]:
    """Return the pages of a list, as the page reads them from the store."""
    wanted = MessageFilter(**dict(parse_qsl(query)))  # pyright: ignore[reportArgumentType]
    labels = Thumbs(world.root / LABELS, "ada").labels()
    pages = [listing.list_messages(world.store, wanted, labels)]
    while pages[-1].older:
        pages.append(listing.list_messages(world.store, wanted.model_copy(update={"older": pages[-1].older}), labels))
    return [[message.id for message in page.messages] for page in pages]


def verdict_of(message: Message) -> str:
    return judged_as(message)[0] if message.agent_id in ("michael", "pam", "jim") else ""


def names(message: Message, claim: str) -> bool:
    return bool(verdict_of(message)) and claim in judged_as(message)[1]


def badness(message: Message) -> int:
    """Return how bad a message is, written out."""
    verdict = verdict_of(message)
    if verdict not in ("out", "unclear"):
        return 0
    return {"out": 1000, "unclear": 1}[verdict] + len(judged_as(message)[1])


def day(message: Message) -> str:
    return message.created_at.astimezone(UTC).date().isoformat()


WEEK = "2026-06-12T17:12:00+00:00/2026-06-19T17:12:00+00:00"
FILTERS: dict[str, Callable[[Message], bool]] = {
    "": lambda m: True,
    "agent=pam": lambda m: m.agent_id == "pam",
    "channel=sales": lambda m: m.channel == "sales",
    "channel=%28direct%29": lambda m: m.channel is None,
    f"window={WEEK.replace('+', '%2B')}": lambda m: m.created_at in listing.window_of(WEEK),
    "q=COMPLETELY+agree": lambda m: "completely" in m.text.lower() and "agree" in m.text.lower(),
    "q=%22completely+agree%22": lambda m: "completely agree" in m.text.lower(),
    "q=%25": lambda m: "%" in m.text,
    "q=_": lambda m: "_" in m.text,
    "q=%00%27%22%5C": lambda m: False,
    "verdict=out": lambda m: verdict_of(m) == "out",
    "verdict=unclear": lambda m: verdict_of(m) == "unclear",
    "verdict=in&agent=pam": lambda m: verdict_of(m) == "in" and m.agent_id == "pam",
    "verdict=out&channel=sales": lambda m: verdict_of(m) == "out" and m.channel == "sales",
    "claim=brief": lambda m: names(m, "brief"),
    "claim=brief&verdict=out": lambda m: names(m, "brief") and verdict_of(m) == "out",
    # The latest run counts, and says otherwise.
    "claim=outdated": lambda m: False,
    "since=2026-06-16": lambda m: day(m) >= "2026-06-16",
    "until=2026-06-16&verdict=": lambda m: day(m) <= "2026-06-16",
    "since=2026-06-15&until=2026-06-16&agent=michael&verdict=out": lambda m: (
        m.agent_id == "michael" and "2026-06-15" <= day(m) <= "2026-06-16" and verdict_of(m) == "out"
    ),
    "since=2026-06-16&until=2026-06-15": lambda m: False,
    "until=9999-12-31&since=": lambda m: True,
    # Of an earlier release.
    "broke=1": lambda m: verdict_of(m) == "out",
    "broke=1&claim=brief&dimension=adherence": lambda m: names(m, "brief") and verdict_of(m) == "out",
    "broke=0": lambda m: True,
    "agent=nobody%27+OR+1%3D1": lambda m: False,
    "thumb=none": lambda m: m.agent_id != "pam",
    "thumb=up": lambda m: m.agent_id == "pam" and len(m.text) % 4 == 0,
    "thumb=down": lambda m: m.agent_id == "pam" and len(m.text) % 4 == 1,
    "thumb=unclear": lambda m: m.agent_id == "pam" and len(m.text) % 4 == 3,
    "thumb=split": lambda m: m.agent_id == "pam" and len(m.text) % 4 == 2,
}


# Turned over forwards and backwards, and as a table, in either order: what is listed does not depend on these.
TURNED = {"", "verdict=out&channel=sales", "thumb=split"}


def test_each_filter_lists_what_it_says_page_by_page(anywhere: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "AT_ONCE", 90)
    everything = sorted(anywhere.messages(), key=lambda m: (m.created_at, m.id), reverse=True)
    worst_first = sorted(everything, key=lambda m: (badness(m), m.created_at, m.id), reverse=True)
    thumbs = []
    for message in (message for message in everything if message.agent_id == "pam"):
        said = ((Role.IN, Role.IN), (Role.OUT, Role.OUT), (Role.OUT, Role.IN), (Role.UNCLEAR, Role.UNCLEAR))
        for name, verdict in zip(("ada", "bob"), said[len(message.text) % 4], strict=True):
            thumbs.append(message_label(message, verdict, name, MarkSource.PERSON))
    write_message_labels(anywhere.root / LABELS, thumbs)
    assert FILTERS.keys() >= TURNED
    for query in FILTERS.keys() - TURNED:
        wanted = [message.id for message in worst_first if FILTERS[query](message)]
        assert [name for page in read(anywhere, query) for name in page] == wanted, query
    with client_of(viewing_app(anywhere)) as client:
        for query in TURNED:
            for order, listed in ("", worst_first), ("newest", everything):
                wanted = [message for message in listed if FILTERS[query](message)]
                address = f"/messages?{query}&order={order}"
                pages = walked(client, address)
                assert [name for page in pages for name in page] == [message.id for message in wanted], address
                assert all(len(page) == 90 for page in pages[:-1])
                rows = csv.DictReader(io.StringIO(client.get(f"/messages.csv?{query}&order={order}").text))
                assert [row["message_id"] for row in rows] == [message.id for message in wanted], address
                if wanted:
                    *rest, last = wanted
                    place = Cursor(badness(last), last.created_at, last.id).text(order)
                    back = walked(client, f"{address}&newer={quoted(place)}", "prev")
                    assert [name for page in back[::-1] for name in page] == [m.id for m in rest], address


def test_a_verdict_stands_at_its_message(reader: TestClient) -> None:
    row = reader.get("/messages?verdict=out&agent=michael").text.partition("sales-072</code>")[2].partition("</li>")[0]
    assert '<mark class="quoted">Great work, Pam. I completely agree.</mark>' in row
    assert '<span class="verdict-text bad">out of character</span>' in row
    assert "the manner is lost" in row and "claim=own-motives" in row
    assert "outdated" not in row


def test_each_message_stands_below_the_last_that_somebody_else_said_there(small_root: Path, store: Store) -> None:
    world = World(small_root, store)
    world.sync()
    said = world.messages()
    start = max(message.created_at for message in said)
    lines = [
        ("ann", "c", None), ("michael", "c", None), ("michael", "c", None), ("ann", "d", None), ("michael", "d", None),
        ("michael", None, "ann"), ("bob", None, "michael"), ("ann", None, "michael"), ("ann", None, "bob"),
        ("michael", None, "ann"), ("michael", "e", None), *[("michael", "c", None)] * (listing._LOOK_BACK + 1),
    ]  # fmt: skip
    made = [
        replace(
            said[0], id=f"n{number:02}", agent_id=agent, channel=channel, recipient=recipient, text=str(number),
            # Of three at one moment the id decides.
            created_at=start + timedelta(minutes=number // 3),
        )
        for number, (agent, channel, recipient) in enumerate(lines, 1)
    ]  # fmt: skip
    write_messages(store, made)
    shown = listing.with_before(store, [Shown(message, None) for message in made])
    found = [item.before.message.id if item.before else None for item in shown]
    expected = [None, "n01", "n01", None, "n04", None, None, "n06", None, "n08", None]
    assert found == expected + ["n01"] * (listing._LOOK_BACK - 2) + [None] * 3


def test_no_cell_of_the_table_is_a_formula(client: TestClient, world: World) -> None:
    first = world.messages()[-1]
    write_messages(world.store, [replace(first, id="=1+1", text='=HYPERLINK("x"),\n"y"'), replace(first, id="next")])
    response = client.get("/messages.csv?order=newest&agent=" + first.agent_id)
    rows = list(csv.DictReader(io.StringIO(response.text)))
    assert response.headers["content-disposition"] == 'attachment; filename="messages.csv"'
    assert response.headers["content-type"].startswith("text/csv")
    found = next(row for row in rows if row["message_id"] == "'=1+1")
    assert plain_cell(found["text"]) == '=HYPERLINK("x"),\n"y"' != found["text"]
    judged = next(row for row in csv.DictReader(io.StringIO(client.get("/messages.csv").text)))
    assert (judged["agent"], judged["verdict"], judged["claims"]) == ("michael", "out", "own-motives; brief")
    assert judged["reason"] == "the manner is lost" and judged["quote"] == judged["text"][:36] != judged["before_text"]


def test_people_agree_as_far_as_the_page_shows(client: TestClient, world: World) -> None:
    said = {message.id: message for message in world.messages()}
    shown, long = ids(client.get("/messages?verdict=out&agent=michael").text), "sales-072"
    write_messages(world.store, [replace(said[long], text="word " * 500)])
    said[long] = replace(said[long], text="word " * 500)
    others = [message for message in said.values() if message.agent_id == "pam"]
    given = [(said[name], Role.OUT) for name in shown[:3]] + [(said[shown[3]], Role.IN), (said[long], Role.OUT)]
    given.append((replace(said[shown[4]], text="It was edited since."), Role.IN))
    labels = [message_label(message, role, "ada", MarkSource.PERSON) for message, role in given]
    labels += [message_label(message, Role.UNCLEAR, "ada", MarkSource.PERSON) for message in others]
    write_message_labels(world.root / LABELS, labels)
    count = len({*shown[:3], long})
    for query in ("verdict=out&agent=michael", "agent=michael"):
        assert f"on this page, people agree on {count} of {count + 1}." in client.get(f"/messages?{query}").text
    assert "people agree" not in client.get("/messages?agent=dwight").text


def test_an_address_of_an_earlier_release_leads_to_the_verdict(reader: TestClient) -> None:
    page = reader.get("/messages?broke=1&agent=michael").text
    assert '<option value="out" selected>' in page
    assert "/undo?back=%2Fmessages%3Fagent%3Dmichael%26verdict%3Dout" in page
    page = reader.get("/messages?older=2026-06-19T00:00:00%2B00:00~x").text
    assert '<option value="newest" selected>' in page and ids(page)[0] not in ids(reader.get("/messages").text)[:1]


def test_without_verdicts_the_page_says_how_they_come(world: World) -> None:
    with client_of(viewing_app(world)) as client:
        assert "No message has a verdict yet" not in client.get("/messages").text
        with world.store.begin() as connection:
            connection.execute(sa.delete(tables.message_verdicts))
        for address in ("/messages", "/messages?verdict=out"):
            page = client.get(address).text
            assert page.count("No message has a verdict yet. <code>persona-pipeline evaluate</code>") == 1
        assert "It has no verdict." in client.get("/message?id=sales-072").text


def test_an_index_finds_the_verdicts_of_messages(world: World) -> None:
    first = world.messages()[-1]
    some = [
        replace(first, id=f"x{number:05}", agent_id="michael", created_at=first.created_at + timedelta(minutes=number))
        for number in range(400)
    ]
    write_messages(world.store, some)
    newest, *_ = newest_runs(world.store, "michael")
    write_verdicts(
        world, newest.id, {item: (Role.OUT, ["brief"]) if item.id == "x00007" else (Role.IN, []) for item in some}
    )
    asked: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        asked.append((statement, parameters))

    with client_of(viewing_app(world)) as client:
        event.listen(world.store.engine, "before_cursor_execute", note)
        assert "x00007" in ids(client.get("/messages?verdict=out&claim=brief").text)
        client.get("/messages")
        event.remove(world.store.engine, "before_cursor_execute", note)
    read = [(text, values) for text, values in asked if "message_verdicts" in text and "said_at" in text]
    assert len(read) >= 3
    with world.store.connect() as connection:
        for statement, values in read:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
            # The worst first are found by one reading of the verdicts; no message or verdict has a reading of its own.
            uses = [row.detail for row in plan if "message_verdicts" in row.detail and row.parent]
            assert all("SEARCH" in use and "(agent_id=? AND said_at=?" in use for use in uses), plan
            outer = [row.detail for row in plan if not row.parent and row.detail.startswith("SCAN")]
            assert len([use for use in outer if "run_messages" in use or "message_verdicts" in use]) <= 1, plan


def test_an_address_that_cannot_be_says_so(reader: TestClient) -> None:
    for address, status in (
        ("/messages?older=yesterday", 409),
        ("/messages?older=" + "9" * 30 + "~2026-06-19T00:00:00Z~x", 409),
        ("/messages.csv?older=1001~yesterday~x", 409),
        ("/messages?since=yesterday", 422),
        ("/messages.csv?until=2026-02-30", 422),
        ("/messages?order=best", 422),
        ("/messages?older=2026-06-19T00:00:00~x", 409),
        ("/messages?window=x/y", 409),
        ("/messages?thumb=maybe", 422),
        ("/messages?broke=maybe", 422),
        ("/messages?verdict=maybe", 422),
        ("/messages?q=" + "x" * 501, 422),
        ("/message?id=gone", 404),
        ("/message?id=sales-072&around=100000", 422),
        ("/message", 422),
        ("/agent?id=nobody", 404),
        ("/agent?id=michael&run=gone", 404),
        ("/compare?agent=nobody&dimension=adherence&claim=x", 404),
        ("/suite?run=gone", 404),
    ):
        response = reader.get(address)
        assert (address, response.status_code) == (address, status)
        assert "This cannot be shown" in response.text, address


def test_a_message_stands_in_its_conversation_beside_what_judges_said(reader: TestClient, seen: World) -> None:
    text = reader.get("/message?id=sales-072&around=3").text
    talk = [message.id for message in seen.messages() if message.channel == "sales"]
    at = talk.index("sales-072")
    assert ids(text) == []
    found = re.findall(r'/message\?id=([^"&]*)"><code>', text)
    assert found == [*talk[at - 3 : at], *talk[at + 1 : at + 4]]
    assert '<mark class="quoted">Great work, Pam. I completely agree.</mark>' in text
    assert text.count("the manner is lost") == 2
    direct = next(message for message in seen.messages() if message.is_direct)
    page = reader.get(f"/message?id={direct.id}").text
    assert [name for name in talk if f"id={name}" in page] == []


def test_long_messages_are_cut_with_a_way_to_all_of_them(world: World) -> None:
    first = world.messages()[-1]
    write_messages(world.store, [replace(first, id="long", text="word " * 200_000 + "<i>end")])
    with client_of(viewing_app(world)) as client:
        for address in ("/messages", "/message?id=long", "/message?id=" + first.id):
            page = client.get(address).text
            assert "end" not in re.findall(r'class="text">.*?</p>', page, re.DOTALL)[0]
            assert len(page) < 400_000
        assert "all of it</a>" in client.get("/messages").text
        assert "Show all 1,000,006 characters" in client.get("/message?id=long").text
        assert "&lt;i&gt;end" in client.get("/message?id=long&whole=1").text


@given(st.text(max_size=60), st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_marks_change_no_letter(text: str, quotes: list[str], words: list[str]) -> None:
    html = str(marked(text, quotes, words))
    assert unescape(re.sub(r"</?mark[^>]*>", "", html)) == unescape(str(escape(text)))
    for quote in quotes:
        assert not quote or quote not in text or "<mark" in html


@pytest.mark.parametrize(
    ("q", "words"),
    [("", []), ("  ", []), ("a b", ["a", "b"]), ('"a b" c', ["a b", "c"]), ('a"b', ["a", "b"]), ('""', [])],
)
def test_what_is_searched_for(q: str, words: list[str]) -> None:
    assert MessageFilter(q=q).words == words
