"""Who may see the page: every address of it asks for the key, answers to this machine's name alone, and is kept by nobody."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from persona_pipeline.world.world import World
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
    root = shutil.copytree(evaluated, tmp_path_factory.mktemp("turned-away") / "world")
    world = World.open(root, f"sqlite:///{root / '.persona' / 'store.db'}")
    before = {path for path in root.rglob("*") if path.parts[-2] != ".persona"}
    with client_of(viewing_app(world)) as running:
        yield running
    world.store.close()
    assert {path for path in root.rglob("*") if path.parts[-2] != ".persona"} == before


@pytest.mark.parametrize("path", [*READ, *WRITE])
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
    stranger: TestClient, path: str, headers: dict[str, str], status: int
) -> None:
    response = ask(stranger, path, headers=headers)
    assert response.status_code == status
    assert "michael" not in response.text.lower()


@pytest.mark.parametrize("path", [*READ, *WRITE])
def test_every_answer_says_what_the_page_may_do(client: TestClient, path: str) -> None:
    headers = ask(client, path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"


def test_the_key_in_the_address_becomes_a_cookie_and_leaves_the_address(world: World) -> None:
    client = TestClient(viewing_app(world), base_url=BASE, follow_redirects=False)
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


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example", "/%2f%2fevil.example"])
def test_the_way_on_leads_nowhere_else(client: TestClient, path: str) -> None:
    response = client.get(f"{BASE}{path}?key={TOKEN}")
    if response.status_code == 303:
        assert response.headers["location"].startswith("/") and not response.headers["location"].startswith(
            ("//", "/\\")
        )


def test_the_key_counts_in_addresses_that_read_only(client: TestClient) -> None:
    assert client.post(f"/undo?key={TOKEN}", headers={"authorization": ""}).status_code == 401
