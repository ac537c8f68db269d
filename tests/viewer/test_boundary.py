"""Who may see the page: every address of it asks for the key, answers to this machine's name alone, and is kept by nobody."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from persona_pipeline.world.world import World
from tests.viewer.conftest import copy_of
from tests.viewer.serving import BASE, TOKEN, client_of, viewing_app

READ = (
    *("/", "/agent?id=michael", "/messages", "/messages?broke=1", "/message?id=sales-072", "/suites", "/suite?run=x"),
    "/compare?agent=michael&dimension=adherence&claim=own-motives",
    *("/view.css", "/view.js", "/nothing"),
)
WRITE = ("/thumb?id=sales-072", "/undo")


def ask(client: TestClient, path: str, **options: Any) -> Any:
    return client.post(path, **options) if path in WRITE else client.get(path, **options)


@pytest.fixture(scope="module")
def stranger(evaluated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Who is turned away again and again, and has changed nothing in the end."""
    root = tmp_path_factory.mktemp("turned-away") / "world"
    with copy_of(evaluated, root) as world, client_of(viewing_app(world)) as running:
        before = {path for path in root.rglob("*") if path.parts[-2] != ".persona"}
        yield running
    assert {path for path in root.rglob("*") if path.parts[-2] != ".persona"} == before


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": ""}, 401),
        ({"authorization": "Bearer t0ke"}, 401),
        ({"authorization": "", "cookie": f"persona_view_9999={TOKEN}"}, 401),
        ({"authorization": "", "cookie": "persona_view_8000=t0ke"}, 401),
        ({"authorization": "", "cookie": 'persona_view_8000="; ;=,'}, 401),
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:8000"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"content-length": "70000"}, 413),
        ({"transfer-encoding": "chunked"}, 413),
    ],
)
def test_without_all_that_it_asks_for_nothing_is_shown(
    stranger: TestClient, headers: dict[str, str], status: int
) -> None:
    for path in (*READ, *WRITE):
        response = ask(stranger, path, headers=headers)
        assert (path, response.status_code) == (path, status)
        assert "michael" not in response.text.lower()


def test_every_answer_says_what_the_page_may_do(reader: TestClient) -> None:
    for path in (*READ, *WRITE):
        headers = ask(reader, path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'"), path
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"


def test_the_key_in_the_address_becomes_a_cookie_and_leaves_the_address(seen: World) -> None:
    client = TestClient(viewing_app(seen), base_url=BASE, follow_redirects=False)
    assert client.get("/").status_code == 401
    wrong = client.get("/?key=t0ke")
    assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
    entered = client.get(f"/messages?agent=pam&key={TOKEN}&q=a%26b")
    assert (entered.status_code, entered.headers["location"]) == (303, "/messages?agent=pam&q=a%26b")
    cookie = entered.headers["set-cookie"]
    assert cookie.startswith(f"persona_view_8000={TOKEN};")
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie
    assert client.get("/messages").status_code == 200
    # Who has been let in and comes with an old address is let in, and given no new cookie.
    again = client.get("/?key=old")
    assert (again.status_code, again.headers["location"], "set-cookie" in again.headers) == (303, "/", False)


def test_the_way_on_leads_nowhere_else(client: TestClient) -> None:
    for path in ("//evil.example/x", "/\\evil.example", "/%2f%2fevil.example"):
        response = client.get(f"{BASE}{path}?key={TOKEN}")
        if response.status_code == 303:
            assert re.match(r"/(?![/\\])", response.headers["location"]), path


def test_the_key_counts_in_addresses_that_read_only(client: TestClient) -> None:
    assert client.post(f"/undo?key={TOKEN}", headers={"authorization": ""}).status_code == 401
