import asyncio
import json
import time
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from persona_pipeline.base.database.engine import open_store
from persona_pipeline.base.http_server import Access
from persona_pipeline.corrections.configuration import write_config
from persona_pipeline.corrections.gate import ActionGate
from persona_pipeline.corrections.records import Action
from persona_pipeline.corrections.service.app import create_app
from persona_pipeline.corrections.statistics import correction_statistics
from persona_pipeline.world import CorrectionSettings, World
from tests.corrections.support import TextBackend, bypass_counts, say, spoil_settings
from tests.support.clock import LONG
from tests.support.waiting import wait_until

LOCAL = "http://localhost"
TOKEN = "s3cret-tökén"
CONFIGURING = {"authorization": "Bearer configure-me"}


def client_of(world: World, access: Access | None = None, base_url: str = LOCAL) -> TestClient:
    return TestClient(create_app(world, TextBackend(), access=access), base_url=base_url)


@pytest.fixture
def client(world: World) -> Iterator[TestClient]:
    with client_of(world, Access(config_token="configure-me")) as running:
        yield running


def gate(client: TestClient, **body: object) -> dict:
    response = client.post("/v1/gate", json={"agent_id": "ann", "channel": "general"} | body)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_whole_action_over_http(client: TestClient) -> None:
    first = gate(client, text="bad 1")
    assert (first["action"], first["outcome"], first["attempt"]) == ("retry", "corrected", 1)
    assert "Ann is interesting" in first["feedback"]
    second = gate(client, text="good 8", attempt=2, action_id=first["action_id"])
    assert (second["action"], second["outcome"], second["text"]) == ("commit", "passed_after_retry", "good 8")
    assert (second["score"], second["threshold"], second["reason"]) == (8, 5, None)


def test_a_direct_message(client: TestClient) -> None:
    assert gate(client, text="x 7", channel=None, recipient="bob")["action"] == "commit"


def test_an_unknown_agent_is_not_held_back(client: TestClient) -> None:
    assert gate(client, agent_id="nobody", text="x 0")["outcome"] == "disabled"


@pytest.mark.parametrize(
    ("body", "where"),
    [
        pytest.param({"text": "x"}, [], id="no place"),
        pytest.param({"text": "x", "channel": "a", "recipient": "b"}, [], id="two places"),
        pytest.param({"text": 5, "channel": "a"}, ["text"], id="a number for text"),
        pytest.param({"text": "x", "channel": "a", "attempt": 0}, ["attempt"], id="attempt 0"),
        pytest.param({"text": "x", "channel": "a", "attempt": "1"}, ["attempt"], id="a string for a number"),
        pytest.param({"text": "x", "channel": "a", "attempts": 1}, ["attempts"], id="unknown key"),
        pytest.param({"text": "x" * 50_001, "channel": "a"}, ["text"], id="too long"),
        pytest.param({"agent_id": "../x", "text": "x", "channel": "a"}, ["agent_id"], id="no agent's id"),
    ],
)
def test_a_request_that_makes_no_sense_is_named(client: TestClient, body: dict, where: list[str]) -> None:
    response = client.post("/v1/gate", json={"agent_id": "ann"} | body)
    assert response.status_code == 422
    assert [item["loc"] for item in response.json()["detail"]] == [["body", *where]]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"5", b'{"agent_id": "\\ud800"}', b'{"\\ud800": NaN}', b"\xff\xfe", b"[" * 5000],
    ids=["nothing", "half", "a list", "a number", "lone surrogate", "NaN", "no UTF-8", "deep"],
)
def test_a_body_that_is_no_request_is_refused_and_nothing_breaks(client: TestClient, body: bytes) -> None:
    response = client.post("/v1/gate", content=body, headers={"content-type": "application/json"})
    assert response.status_code in (400, 422)
    assert "detail" in response.json()


def test_interventions(client: TestClient, world: World) -> None:
    write_config(world.store, "ann", CorrectionSettings(anti_convergence_enabled=True))
    say(world, *[("bob", "general", "I agree")] * 10)
    body = client.post("/v1/interventions", json={"agent_id": "ann", "channel": "general"}).json()
    assert body["guidance"].startswith("### Conversation Guidance\n\n")
    assert [(item["kind"], item["share"], item["threshold"]) for item in body["nudges"]] == [
        ("anti_convergence", 1.0, 0.6)
    ]
    assert 'persona_nudges_total{kind="anti_convergence"} 1.0' in client.get("/metrics").text
    quiet = client.post("/v1/interventions", json={"agent_id": "bob"}).json()
    assert quiet == {"guidance": None, "nudges": [], "withheld": [], "failed": False}


def test_corrections_that_only_watch_answer_at_once_and_are_counted(client: TestClient, world: World) -> None:
    watching = {"action_gate_enabled": True, "anti_convergence_enabled": True, "shadow_mode": True}
    write_config(world.store, "ann", CorrectionSettings(**watching))
    say(world, *[("bob", "general", "I agree")] * 10)
    answer = client.post("/v1/gate", json={"agent_id": "ann", "channel": "general", "text": "Bad. 1"}).json()
    assert (answer["action"], answer["outcome"], answer["score"]) == ("commit", "shadow", None)
    body = client.post("/v1/interventions", json={"agent_id": "ann", "channel": "general"}).json()
    assert (body["guidance"], body["nudges"], [item["share"] for item in body["withheld"]]) == (None, [], [1.0])
    wait_until(lambda: "persona_gate_shadow_held_total 1.0" in client.get("/metrics").text)
    assert 'persona_shadow_nudges_total{kind="anti_convergence"} 1.0' in client.get("/metrics").text
    ann = client.get("/v1/statistics").json()["agents"]["ann"]
    assert (ann["shadowed"], ann["would_hold"], ann["passed"]) == (1, 1, 0)


def test_settings_are_read_and_replaced(client: TestClient) -> None:
    before = client.get("/v1/agents/bob/config").json()
    assert (before["source"], before["action_gate_enabled"], before["action_gate_threshold"]) == ("persona", False, 5.0)
    body = {"action_gate_enabled": True, "action_gate_threshold": 6.5}
    after = client.put("/v1/agents/bob/config", json=body, headers=CONFIGURING).json()
    assert (after["source"], after["action_gate_enabled"], after["action_gate_threshold"]) == ("api", True, 6.5)
    assert client.get("/v1/agents/bob/config").json() == after
    assert gate(client, agent_id="bob", text="fair 6")["action"] == "retry"
    assert client.put("/v1/agents/bob/config", json={}, headers=CONFIGURING).json()["action_gate_enabled"] is False


@pytest.mark.parametrize(
    "body",
    [{"action_gate_enabled": "yes"}, {"action_gate_threshold": 9.5}, {"max_correction_attempts": 1.5}, {"gate": True}],
)
def test_settings_are_strict(client: TestClient, body: dict) -> None:
    assert client.put("/v1/agents/bob/config", json=body, headers=CONFIGURING).status_code == 422


def test_settings_of_nobody(client: TestClient) -> None:
    for response in (
        client.get("/v1/agents/nobody/config"),
        client.put("/v1/agents/nobody/config", json={}, headers=CONFIGURING),
    ):
        assert response.status_code == 404
        assert "personas/nobody.yaml" in response.json()["detail"]


def test_statistics(client: TestClient) -> None:
    for attempt in (1, 2, 3):
        gate(client, text="bad 1", attempt=attempt)
    body = client.get("/v1/statistics", params={"agent_id": "ann", "window": "7d"}).json()
    assert (body["total"]["actions"], body["total"]["forced"], body["agents"]["ann"]["checks"]) == (1, 1, 3)
    assert client.get("/v1/statistics", params={"agent_id": "bob"}).json()["total"]["actions"] == 0
    assert client.get("/v1/statistics", params={"window": "soon"}).status_code == 422
    assert client.get("/v1/statistics", params={"agent": "bob"}).status_code == 422


def test_metrics(client: TestClient) -> None:
    gate(client, text="bad 1")
    gate(client, text="x", agent_id="bob")
    text = client.get("/metrics").text
    assert 'persona_gate_checks_total{outcome="corrected",reason=""} 1.0' in text
    assert 'persona_gate_checks_total{outcome="disabled",reason=""} 1.0' in text
    assert 'persona_gate_tokens_total{kind="input"} 100.0' in text
    assert "persona_gate_check_seconds_count 2.0" in text
    assert "persona_gate_usd_total 2e-05" in text


def test_health(client: TestClient) -> None:
    body = client.get("/health").json()
    assert (body["status"], body["judge"]) == ("ok", "text")


def test_with_the_database_down_messages_go_through_and_health_says_so(world: World) -> None:
    down = World(world.root, open_store("postgresql://nobody@127.0.0.1:1/none", migrate=False))
    with client_of(down) as client:
        assert gate(client, text="bad 0")["reason"] == "database"
        assert client.post("/v1/interventions", json={"agent_id": "ann"}).json()["failed"] is True
        assert client.get("/health").json()["status"] == "degraded"
        assert client.get("/v1/statistics").status_code == 503
        assert client.get("/v1/agents/ann/config").status_code == 503


@pytest.mark.parametrize("path", ["/v1/statistics", "/metrics", "/v1/agents/ann/config", "/nowhere"])
@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer " + TOKEN[:-1]]
)
def test_without_the_token_nothing_is_told(world: World, path: str, header: str | None) -> None:
    with client_of(world, Access(TOKEN), "http://corrections.example") as client:
        headers = {} if header is None else {"authorization": header.encode("latin-1")}
        response = client.get(path, headers=headers)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert set(response.json()) == {"detail"}


def test_with_the_token_from_anywhere(world: World) -> None:
    token = "s3cret-token"
    with client_of(world, Access(token), "http://corrections.example") as client:
        assert client.get("/v1/statistics", headers={"authorization": f"Bearer {token}"}).status_code == 200
        assert client.get("/v1/statistics", headers={"authorization": f"bearer  {token}"}).status_code == 200
        assert client.get("/health").status_code == 200
        assert client.get("/openapi.json").status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8765", 200),
        ("127.0.0.1:8765", 200),
        ("[::1]:8765", 200),
        ("LOCALHOST", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("", 421),
    ],
)
def test_without_a_token_only_this_machine_by_name(client: TestClient, host: str, status: int) -> None:
    assert client.get("/health", headers={"host": host}).status_code == status


def test_a_body_beyond_the_limit_is_refused(world: World) -> None:
    with client_of(world, Access(max_body=2000)) as client:
        large = json.dumps({"agent_id": "ann", "text": "x" * 2000, "channel": "general"}).encode()
        announced = client.post("/v1/gate", content=large)
        streamed = client.post("/v1/gate", content=iter([large[:1500], large[1500:]]))
        assert (announced.status_code, streamed.status_code) == (413, 413)
        assert gate(client, text="x" * 1500 + "7")["action"] == "commit"


def test_every_response_carries_a_request_id(client: TestClient) -> None:
    given = client.get("/health", headers={"x-request-id": "trace-1"})
    assert given.headers["x-request-id"] == "trace-1"
    assert len(client.get("/health", headers={"x-request-id": "a b\tc"}).headers["x-request-id"]) == 32
    assert client.get("/nowhere").headers["x-request-id"] != client.get("/nowhere").headers["x-request-id"]


def test_the_description_names_every_route(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert set(paths) == {
        "/v1/gate",
        "/v1/interventions",
        "/v1/agents/{agent_id}/config",
        "/v1/statistics",
        "/health",
        "/metrics",
    }


@pytest.mark.parametrize(
    ("access", "headers", "status"),
    [
        (Access(), {}, 403),
        (Access("check"), {"authorization": "Bearer check"}, 403),
        (Access(config_token="set"), {}, 401),
        (Access("check", config_token="set"), {"authorization": "Bearer check"}, 401),
        (Access("check", config_token="set"), {"authorization": "Bearer set"}, 200),
        (Access(config_token="set"), {"authorization": "Bearer set"}, 200),
    ],
    ids=["no token at all", "only one to check", "none sent", "the one to check", "the right one", "on this machine"],
)
def test_who_checks_cannot_configure(world: World, access: Access, headers: dict[str, str], status: int) -> None:
    with client_of(world, access) as client:
        response = client.put("/v1/agents/ann/config", json={"action_gate_enabled": False}, headers=headers)
        assert response.status_code == status
        again = {"authorization": f"Bearer {access.token}"}
        assert client.get("/v1/agents/ann/config", headers=again).json()["action_gate_enabled"] is (status != 200)


def test_the_token_to_configure_checks_nothing(world: World) -> None:
    with client_of(world, Access("check", config_token="set")) as client:
        body = {"agent_id": "ann", "text": "x", "channel": "general"}
        assert client.post("/v1/gate", json=body, headers={"authorization": "Bearer set"}).status_code == 401
        assert client.get("/v1/statistics", headers={"authorization": "Bearer set"}).status_code == 200


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"x" * 3000, "too_large"),
        (b"{", "invalid_request"),
        (b'{"agent_id": "ann"}', "invalid_request"),
        (b'{"agent_id": "ann", "text": "a", "text": "b", "channel": "general"}', "invalid_request"),
        (b'{"agent_id": "ann", "text": "a", "channel": "general", "attempt": 1e999}', "invalid_request"),
        (b"\xff", "invalid_request"),
    ],
    ids=["too large", "no JSON", "a field is missing", "a key stands twice", "infinite", "not UTF-8"],
)
def test_a_request_that_is_refused_leaves_a_row_and_a_metric(world: World, content: bytes, reason: str) -> None:
    with client_of(world, Access(max_body=2000)) as client:
        for _ in range(3):
            response = client.post("/v1/gate", content=content, headers={"content-type": "application/json"})
            assert response.status_code in (400, 413, 422)
        assert f'gate_unchecked_total{{reason="{reason}"}} 3.0' in client.get("/metrics").text
    assert bypass_counts(world.store) == {reason: 3}


def test_texts_of_unknown_agents_and_past_a_gate_that_is_off_are_counted(world: World) -> None:
    with client_of(world) as client:
        gate(client, text="x", agent_id="bob")
        gate(client, text="x", agent_id="nobody")
        spoil_settings(world, "ann")
        assert gate(client, text="x")["reason"] == "configuration"
        text = client.get("/metrics").text
        assert 'gate_unchecked_total{reason="disabled"} 2.0' in text
        assert 'gate_unchecked_total{reason="configuration"} 1.0' in text
    assert bypass_counts(world.store) == {"disabled": 2}
    assert correction_statistics(world.store).total.fail_open_by_reason == {"configuration": 1}


def test_the_deadline_counts_from_the_arrival_of_the_request(world: World) -> None:
    arrived = time.monotonic() - 2 * LONG
    decision = asyncio.run(ActionGate(world, TextBackend()).check("ann", "bad 1", channel="general", arrived=arrived))
    assert (decision.action, decision.reason) == (Action.COMMIT, "overload")
