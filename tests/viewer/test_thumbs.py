"""Thumbs are labels of messages, in the same file: given, changed, taken back, and never lost to another tab."""

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from persona_pipeline.guard.labels.files import LABELS
from persona_pipeline.guard.labels.messages import (
    MarkSource,
    MessageLabel,
    load_message_labels,
    message_key,
    message_label,
    write_message_labels,
)
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.viewer.thumbs import ChangedMeanwhileError, Thumbs, stamp
from persona_pipeline.world.world import World
from tests.viewer.serving import client_of, viewing_app

ID = "sales-072"


def labels(world: World) -> list[MessageLabel]:
    return load_message_labels(world.root / LABELS)


def press(client: TestClient, thumb: str, *, seen: str | None = None, **headers: Any) -> Any:
    """Press a thumb as a page does that was loaded now, or that showed another label then."""
    if seen is None:
        found = re.search(r'name="seen" value="([^"]*)"', client.get(f"/message?id={ID}").text)
        assert found
        seen = found[1]
    return client.post(f"/thumb?id={ID}", data={"thumb": thumb, "seen": seen}, headers=headers)


def test_a_thumb_is_a_label_of_the_message(client: TestClient, world: World) -> None:
    said = next(message for message in world.messages() if message.id == ID)
    response = press(client, "down")
    assert (response.status_code, response.headers["location"]) == (303, f"/message?id={ID}")
    (label,) = labels(world)
    assert (label.key, label.message, label.text) == (message_key("michael", ID, said.text), ID, said.text)
    assert (label.labeller, label.verdict, label.source) == ("ada", Role.OUT, MarkSource.PERSON)
    write_message_labels(world.root / LABELS, [label.model_copy(update={"verdict": Role.IN})])
    (changed,) = labels(world)
    assert (changed.identity, changed.verdict) == (label.identity, Role.IN)
    assert 'data-thumb="up" aria-pressed="true"' in client.get(f"/message?id={ID}").text


def test_it_is_changed_taken_away_and_each_step_is_undone(client: TestClient, world: World) -> None:
    steps: list[list[str]] = [[]]
    for thumb in ("up", "down", "", "unclear"):
        press(client, thumb)
        steps.append([label.verdict for label in labels(world)])
    assert steps == [[], ["in"], ["out"], [], ["unclear"]]
    for before in reversed(steps[:-1]):
        assert client.post("/undo").status_code == 303
        assert [label.verdict for label in labels(world)] == before
    assert client.post("/undo").status_code == 409


def test_what_another_tab_did_meanwhile_is_not_overwritten_unseen(client: TestClient, world: World) -> None:
    assert press(client, "up", seen="").status_code == 303
    for headers in ({}, {"x-fragment": "1"}):
        late = press(client, "down", seen="", **headers)
        assert late.status_code == 409
        assert "This message now has your label “in”" in late.text
        assert [label.verdict for label in labels(world)] == ["in"]
    # Who says the same changes nothing, and who has seen it may.
    assert press(client, "up", seen="").status_code == 303
    assert press(client, "down").status_code == 303
    assert [label.verdict for label in labels(world)] == ["out"]


def test_an_undo_leaves_what_was_changed_elsewhere(world: World) -> None:
    message = next(message for message in world.messages() if message.id == ID)
    here, there = (Thumbs(world.root / LABELS, "ada") for _ in range(2))
    here.give(message, "up", seen="")
    there.give(message, "down", seen=stamp(there.own(ID, "michael")))
    with pytest.raises(ChangedMeanwhileError):
        here.undo()
    assert [label.verdict for label in labels(world)] == ["out"]
    assert here.undo() is None


def test_others_thumbs_stand_beside_ones_own(client: TestClient, world: World) -> None:
    message = next(message for message in world.messages() if message.id == ID)
    his = message_label(message, Role.IN, "bob", MarkSource.PERSON, note="<i>his</i>")
    write_message_labels(world.root / LABELS, [his])
    page = client.get(f"/message?id={ID}").text
    assert "<bdi>bob</bdi>: in" in page and "&lt;i&gt;his" in page
    press(client, "down")
    assert sorted((label.labeller, label.verdict) for label in labels(world)) == [("ada", "out"), ("bob", "in")]


def test_what_is_no_thumb_is_not_kept(client: TestClient, world: World) -> None:
    for form in ({"thumb": "sideways", "seen": ""}, {}):
        assert client.post(f"/thumb?id={ID}", data=form).status_code == 422
    assert client.post("/thumb?id=gone", data={"thumb": "up"}).status_code == 404
    assert labels(world) == []


def test_without_a_labeller_there_are_no_thumbs(world: World) -> None:
    with client_of(viewing_app(world, "")) as client:
        assert 'class="thumbs"' not in client.get("/messages").text
        assert client.post(f"/thumb?id={ID}", data={"thumb": "up", "seen": ""}).status_code == 422
    assert labels(world) == []


def test_a_label_file_that_is_broken_is_said_and_left(client: TestClient, world: World) -> None:
    path: Path = world.root / LABELS / "messages.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("{\n", encoding="utf-8")
    for response in (client.get("/messages"), client.post(f"/thumb?id={ID}", data={"thumb": "up"})):
        assert response.status_code == 409
        assert "messages.jsonl:1" in response.text
    assert path.read_text(encoding="utf-8") == "{\n"


def test_the_way_back_is_a_page_of_messages(client: TestClient) -> None:
    for back in ("//evil.example", "/messages?x\r\nSet-Cookie: a=b", "https://evil.example/messages?", "/label/"):
        response = client.post("/thumb", params={"id": ID, "back": back}, data={"thumb": "up"})
        assert response.headers["location"] == f"/message?id={ID}", back
    fine = client.post("/thumb", params={"id": ID, "back": "/messages?agent=pam&q=a%22"}, data={"thumb": "up"})
    assert fine.headers["location"] == "/messages?agent=pam&q=a%22"
