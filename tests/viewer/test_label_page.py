"""The page's API: blind until answered, for its own page alone, and an error writes nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from persona_pipeline.guard.labels.files import load_labels
from persona_pipeline.viewer.labels import Labelling
from persona_pipeline.world.world import World
from tests.labels.judgments import judgment, judgments
from tests.viewer.serving import BASE, client_of, labelling_app, viewing_app


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    session = Labelling(tmp_path / "labels", judgments(4), "ada")
    with client_of(labelling_app(tmp_path, session)) as running:
        yield running


def state(client: TestClient) -> dict[str, Any]:
    response = client.get("/label/api/state")
    assert response.status_code == 200
    return response.json()


def test_what_the_judge_said_is_not_sent_before_the_answer(client: TestClient) -> None:
    before = client.get("/label/api/state").text
    assert "Reason" not in before and "judge-1" not in before
    told = state(client)
    assert told["last"] is None
    assert told["item"].keys() == {"key", "dimension", "claim", "persona", "transcript", "note"}
    number = int(told["item"]["claim"].removeprefix("Michael has habit "))
    after = client.post("/label/api/answer", json={"key": told["item"]["key"], "answer": 3, "note": "x"}).json()
    (judge,) = after["last"]["judges"]
    assert judge == {"model": "judge-1", "said": [str(number)], "reasoning": f"Reason {number}."}
    assert after["last"]["answer"] == "3"
    assert after["item"]["key"] != told["item"]["key"]
    skipped = client.post("/label/api/skip", json={"key": after["item"]["key"]}).json()
    assert skipped["last"] == {"claim": after["item"]["claim"], "answer": None, "judges": []}


def test_what_is_taken_back_comes_again_with_its_note(client: TestClient) -> None:
    key = state(client)["item"]["key"]
    client.post("/label/api/answer", json={"key": key, "answer": "not_applicable", "note": "never came up"})
    item = client.post("/label/api/undo").json()["item"]
    assert (item["key"], item["note"]) == (key, "never came up")
    assert state(client)["progress"] == [{"dimension": "adherence", "done": 0, "judged": 4}]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": ""}, 401),
        ({"authorization": "Bearer t0ke"}, 401),
        ({"authorization": "Bearer tökén".encode()}, 401),
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example:8000"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"content-length": "70000"}, 413),
        ({"transfer-encoding": "chunked"}, 413),
        ({"origin": BASE}, 200),
        ({"host": "localhost:8000", "origin": "http://localhost:8000"}, 200),
    ],
)
def test_who_may_ask(client: TestClient, tmp_path: Path, headers: dict[str, Any], status: int) -> None:
    key = state(client)["item"]["key"]
    response = client.post("/label/api/answer", json={"key": key, "answer": 3}, headers=headers)
    assert response.status_code == status, response.text
    assert len(load_labels(tmp_path / "labels")) == (status == 200)


@pytest.mark.parametrize("path", ["/label/", "/label/label.css", "/label/label.js", "/label/api/state", "/nothing"])
def test_every_answer_says_what_the_page_may_do(client: TestClient, path: str) -> None:
    response = client.get(path)
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"answer": 3}, 422),
        ({"answer": 10}, 422),
        ({"answer": -1}, 422),
        ({"answer": True}, 422),
        ({"answer": 3.0}, 422),
        ({"answer": "3"}, 422),
        ({"answer": "no_evidence"}, 422),
        ({"answer": 3, "note": "x" * 2001}, 422),
        ({"answer": 3, "labeller": "bob"}, 422),
        ({"answer": 3, "key": "0" * 64}, 404),
    ],
)
def test_what_is_no_answer_is_not_written(
    client: TestClient, tmp_path: Path, body: dict[str, Any], status: int
) -> None:
    key = {} if body == {"answer": 3} else {"key": state(client)["item"]["key"]}
    response = client.post("/label/api/answer", json=key | body)
    assert response.status_code == status
    assert isinstance(response.json()["detail"], str)
    assert load_labels(tmp_path / "labels") == []


def test_a_label_file_that_is_broken_is_said(client: TestClient, tmp_path: Path) -> None:
    key = state(client)["item"]["key"]
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "adherence.jsonl").write_text("{\n", encoding="utf-8")
    response = client.post("/label/api/answer", json={"key": key, "answer": 3})
    assert response.status_code == 409
    assert "adherence.jsonl:1: not JSON" in response.json()["detail"]


def test_a_folder_that_cannot_be_written_is_said(client: TestClient, tmp_path: Path) -> None:
    key = state(client)["item"]["key"]
    (tmp_path / "labels").write_text("a file", encoding="utf-8")
    response = client.post("/label/api/answer", json={"key": key, "answer": 3})
    assert response.status_code == 507
    assert state(client)["last"] is None


def test_words_that_no_utf8_holds_are_shown_all_the_same(tmp_path: Path) -> None:
    session = Labelling(tmp_path / "labels", [judgment(1, 5, "adherence", "lone \ud800 half")], "ada")
    with client_of(labelling_app(tmp_path, session)) as client:
        response = client.get("/label/api/state")
        assert b"lone \\ud800 half" in response.content
        assert response.json()["item"]["transcript"][0]["text"] == "lone \ud800 half"


def test_where_nothing_is_judged_yet_the_page_says_so(small_world: World) -> None:
    with client_of(viewing_app(small_world)) as client:
        response = client.get("/label/api/state")
    assert response.status_code == 409
    assert "nothing of this is judged yet; run persona-pipeline evaluate" in response.json()["detail"]
