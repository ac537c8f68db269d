"""Messages as the page lists them, on both databases, beside a filter that is written out."""

import re
import shutil
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from persona_pipeline.guard.labels.files import LABELS, write_label_files
from persona_pipeline.guard.labels.messages import MarkSource, MessageLabel, message_label
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.viewer import messages as listing
from persona_pipeline.viewer.app import marked
from persona_pipeline.viewer.citations import Citations
from persona_pipeline.viewer.messages import MessageFilter
from persona_pipeline.world.models import Message, Window
from persona_pipeline.world.world import World
from tests.conftest import POSTGRES
from tests.viewer.conftest import evaluate_sample
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


def broke(world: World) -> Callable[[Message], set[tuple[str, str]]]:
    """Return which claims of its own agent a message broke, read from whole runs."""
    from tests.support.evaluating import latest_runs

    found: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for agent_id in world.agent_ids():
        for run in latest_runs(world.store, agent_id):
            drops = (
                {(drop.dimension, drop.proposition_id) for drop in run.comparison.drops} if run.comparison else set()
            )
            for name, dimension in run.evaluation.dimensions.items():
                for key, claim in dimension.propositions.items():
                    low = claim.score is not None and (claim.score < 5 or (name, key) in drops)
                    for evidence in claim.evidence if low and not claim.algorithmic else ():
                        if evidence.verified and evidence.message_id:
                            found.setdefault((agent_id, evidence.message_id), set()).add((name, key))
    return lambda message: found.get((message.agent_id, message.id), set())


WEEK = "2026-06-12T17:12:00+00:00/2026-06-19T17:12:00+00:00"
FILTERS: dict[str, Callable[[Message, Callable[[Message], set[tuple[str, str]]]], bool]] = {
    "": lambda m, b: True,
    "agent=pam": lambda m, b: m.agent_id == "pam",
    "channel=sales": lambda m, b: m.channel == "sales",
    "channel=%28direct%29": lambda m, b: m.channel is None,
    f"window={WEEK.replace('+', '%2B')}": lambda m, b: m.created_at in listing.window_of(WEEK),
    "q=COMPLETELY+agree": lambda m, b: "completely" in m.text.lower() and "agree" in m.text.lower(),
    "q=%22completely+agree%22": lambda m, b: "completely agree" in m.text.lower(),
    "q=%25": lambda m, b: "%" in m.text,
    "q=_": lambda m, b: "_" in m.text,
    "q=%00%27%22%5C": lambda m, b: False,
    "broke=1": lambda m, b: bool(b(m)),
    "broke=1&agent=michael&channel=sales": lambda m, b: m.agent_id == "michael" and m.channel == "sales" and bool(b(m)),
    "broke=1&dimension=fluency": lambda m, b: any(name == "fluency" for name, _ in b(m)),
    "broke=1&claim=own-motives": lambda m, b: any(key == "own-motives" for _, key in b(m)),
    "agent=nobody%27+OR+1%3D1": lambda m, b: False,
    "thumb=none": lambda m, b: m.agent_id != "pam",
    "thumb=up": lambda m, b: m.agent_id == "pam" and len(m.text) % 4 == 0,
    "thumb=down": lambda m, b: m.agent_id == "pam" and len(m.text) % 4 == 1,
    "thumb=unclear": lambda m, b: m.agent_id == "pam" and len(m.text) % 4 == 3,
    "thumb=split": lambda m, b: m.agent_id == "pam" and len(m.text) % 4 == 2,
}


def test_each_filter_lists_what_it_says_page_by_page(anywhere: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "AT_ONCE", 10)
    everything = sorted(anywhere.messages(), key=lambda m: (m.created_at, m.id), reverse=True)
    thumbs = []
    for message in (message for message in everything if message.agent_id == "pam"):
        said = ((Role.IN, Role.IN), (Role.OUT, Role.OUT), (Role.OUT, Role.IN), (Role.UNCLEAR, Role.UNCLEAR))
        for name, verdict in zip(("ada", "bob"), said[len(message.text) % 4], strict=True):
            thumbs.append(message_label(message, verdict, name, MarkSource.PERSON))
    write_label_files(MessageLabel, anywhere.root / LABELS, thumbs)
    broken = broke(anywhere)
    with client_of(viewing_app(anywhere)) as client:
        for query, is_meant in FILTERS.items():
            wanted = [message.id for message in everything if is_meant(message, broken)]
            pages = walked(client, f"/messages?{query}")
            assert [name for page in pages for name in page] == wanted, query
            assert all(len(page) == 10 for page in pages[:-1])
            if len(pages) > 2:
                last = everything[-1]
                back = walked(
                    client, f"/messages?{query}&newer={listing.cursor(last)}".replace("+00:00~", "%2B00:00~"), "prev"
                )
                assert sorted(name for page in back for name in page) == sorted(set(wanted) - {last.id}), query


def test_what_is_read_for_a_span_is_all_that_bears_on_it(world: World) -> None:
    whole = Citations(world.store).index()
    assert whole.complete and whole.by_message
    for message in world.messages():
        near = Citations(world.store).index(span=Window(message.created_at, message.created_at))
        # By the same runs, or by ones that could not know it.
        assert list(near.of(message.id)) == whole.of(message.id)
    warm = Citations(world.store)
    warm.warm()
    assert warm.index(agents=[]).by_message == whole.by_message


def test_a_run_that_comes_meanwhile_is_known_and_one_that_goes_is_not(world: World) -> None:
    import sqlalchemy as sa

    from persona_pipeline.base.database import tables

    citations = Citations(world.store)
    before = citations.index().by_message
    with world.store.begin() as connection:
        connection.execute(sa.delete(tables.evaluation_runs).where(tables.evaluation_runs.c.agent_id == "michael"))
    without = citations.index()
    assert "michael" not in without.claims
    assert not any(item.agent_id == "michael" for own in without.by_message.values() for item in own)
    evaluate_sample(world)
    again = citations.index().by_message
    assert {key: len(own) for key, own in again.items()} == {key: len(own) for key, own in before.items()}


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/messages?older=yesterday", 409),
        ("/messages?older=2026-06-19T00:00:00~x", 409),
        ("/messages?window=x/y", 409),
        ("/messages?thumb=maybe", 422),
        ("/messages?broke=maybe", 422),
        ("/messages?q=" + "x" * 501, 422),
        ("/message?id=gone", 404),
        ("/message?id=sales-072&around=100000", 422),
        ("/message", 422),
        ("/agent?id=nobody", 404),
        ("/agent?id=michael&run=gone", 404),
        ("/compare?agent=nobody&dimension=adherence&claim=x", 404),
        ("/suite?run=gone", 404),
    ],
)
def test_an_address_that_cannot_be_says_so(client: TestClient, address: str, status: int) -> None:
    response = client.get(address)
    assert response.status_code == status
    assert "This cannot be shown" in response.text


def test_a_message_stands_in_its_conversation_beside_what_judges_said(client: TestClient, world: World) -> None:
    text = client.get("/message?id=sales-072&around=3").text
    talk = [message.id for message in world.messages(channels=["sales"])]
    at = talk.index("sales-072")
    assert ids(text) == []
    found = re.findall(r'/message\?id=([^"&]*)"><code>', text)
    assert found == [*talk[at - 3 : at], *talk[at + 1 : at + 4]]
    assert '<mark class="quoted">Great work, Pam. I completely agree.</mark>' in text
    assert "with no story, bent proverb or catchphrase" in text
    direct = next(message for message in world.messages() if message.is_direct)
    assert all(f"id={name}" not in client.get(f"/message?id={direct.id}").text for name in talk)


def test_long_messages_are_cut_with_a_way_to_all_of_them(world: World) -> None:
    from dataclasses import replace

    from persona_pipeline.world.messages.store import write_messages

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
