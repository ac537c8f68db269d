"""Agents, claims before and after, and suites: what the page says of them is what the store says."""

import re
from html import unescape
from typing import Any

import pytest
from fastapi.testclient import TestClient

from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.testing import WorldBuilder
from persona_pipeline.viewer import runs
from persona_pipeline.world.world import World
from tests.conftest import BEFORE_THE_DRIFT
from tests.reporting.html.test_browser import HOSTILE
from tests.support.evaluating import stored_report
from tests.viewer.conftest import judged_as, write_verdicts
from tests.viewer.serving import client_of, viewing_app


def pills(text: str) -> list[tuple[str, str]]:
    return re.findall(r'<bdi>([^<]*)</bdi></a><span class="pill (\w+)">', text)


def test_everybody_has_the_verdict_of_the_report(reader: TestClient, seen: World) -> None:
    text = reader.get("/").text
    report = stored_report(seen, seen.agent_ids())
    said = {agent.evaluation.display_name: agent.conclusion.verdict for agent in report.agents.values()}
    assert dict(pills(text)) == dict(said.items())
    assert pills(text)[0] == ("Michael Scott", "fell")
    assert "3 in character, 1 drifted" in text
    assert [name for name, _ in pills(reader.get("/?verdict=held").text)] == [
        "Dwight Schrute",
        "Jim Halpert",
        "Pam Beesly",
    ]
    assert [name for name, _ in pills(reader.get("/?q=PAM").text)] == ["Pam Beesly"]


def test_agents_and_weeks_show_the_share_in_character_and_lead_to_the_messages(reader: TestClient, seen: World) -> None:
    weeks, shares = runs.weekly_shares(seen)
    messages = [message for message in seen.messages() if message.agent_id in ("michael", "pam", "jim")]
    for agent_id in ("michael", "pam", "jim"):
        said = [
            [judged_as(m)[0] for m in messages if m.agent_id == agent_id and m.created_at in week] for week in weeks
        ]
        wanted = {
            place: (own.count(Role.IN), own.count(Role.IN) + own.count(Role.OUT))
            for place, own in enumerate(said)
            if own
        }
        assert {place: (cell.n_in, cell.n) for place, cell in shares[agent_id].items()} == wanted
    assert set(shares) == {"michael", "pam", "jim"}
    assert shares["michael"][7].tone == "bad" and shares["pam"][7].tone == "good"
    page = reader.get("/").text
    table = page[page.index('<table class="weeks">') :]
    cell = f'<td class="number bad"><a href="([^"]*)">{shares["michael"][7].n_in} / {shares["michael"][7].n}</a>'
    found = re.search(cell, table)
    assert found
    assert reader.get(unescape(found[1])).text.count('<li class="card message out"') == shares["michael"][7].n
    assert table.count("<a href=") == 3 + sum(len(own) for own in shares.values())


def test_nothing_is_green_that_cannot_be_told(world: World) -> None:
    for path in (world.root / "baselines").iterdir():
        path.unlink()
    from persona_pipeline.judging.open import open_judge
    from tests.support.evaluating import evaluate_world

    evaluate_world(world, judge=open_judge("recorded", world))
    with client_of(viewing_app(world)) as client:
        for address in ("/", "/agent?id=pam"):
            text = client.get(address).text
            assert "pill cannot_tell" in text
            assert "pill held" not in text


def test_an_agent_that_nobody_judged_is_grey(world: World) -> None:
    WorldBuilder(world.root).persona("kevin", "Kevin likes <b>chili</b>.")
    with client_of(viewing_app(world)) as client:
        assert 'id=kevin"><bdi>kevin</bdi></a><span class="pill nothing">never evaluated' in client.get("/").text
        assert "Never evaluated" in client.get("/agent?id=kevin").text


def test_a_world_without_anything_says_what_to_do(tmp_path_factory: pytest.TempPathFactory) -> None:
    world = WorldBuilder(tmp_path_factory.mktemp("empty")).persona("ann", "Ann is dry.").open()
    with client_of(viewing_app(world)) as client:
        for address, command in (
            ("/", "persona-pipeline evaluate"),
            ("/messages", "persona-pipeline ingest"),
            ("/suites", "persona-pipeline suite run"),
        ):
            assert command in client.get(address).text


def test_an_agents_windows_and_claims(reader: TestClient, seen: World) -> None:
    newest, earlier = runs.newest_runs(seen.store, "michael")
    assert earlier.window.end == BEFORE_THE_DRIFT
    page = reader.get("/agent?id=michael").text
    assert "4 of 5 dimensions dropped" in page
    assert f"run={earlier.id}" in page and f"run={newest.id}" in page
    past = reader.get(f"/agent?id=michael&run={earlier.id}").text
    assert "not the newest" in past and "pill held" in past and "drifted" not in past


def test_a_claim_before_and_after(reader: TestClient, seen: World) -> None:
    claim = "agent=michael&dimension=adherence&claim=recognizable-from-words"
    page = reader.get(f"/compare?{claim}").text
    before, after = page.split('id="side-2"')
    assert '<span class="value">9.0</span>' in before and '<span class="value">0.0</span>' in after
    assert '<mark class="quoted">from a mime, and he spoke very highly of me!</mark>' in before
    assert '<mark class="quoted">Great work, Pam. I completely agree.</mark>' in after
    newest, earlier = runs.newest_runs(seen.store, "michael")
    turned = reader.get(f"/compare?{claim}&before={newest.id}&after={earlier.id}").text
    assert '<span class="value">0.0</span>' in turned.split('id="side-2"')[0]
    assert "not judged there" in reader.get("/compare?agent=michael&dimension=adherence&claim=none").text


def test_what_several_samples_quote_stands_once(seen: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(*asked: object) -> object:
        saved = stored(*asked)
        own = saved.evaluation.dimensions["adherence"].propositions
        claim = own["recognizable-from-words"]
        own["recognizable-from-words"] = claim.model_copy(update={"evidence": [*claim.evidence, *claim.evidence]})
        return saved

    def lines() -> int:
        found = runs.before_and_after(seen, "michael", "adherence", "recognizable-from-words")
        assert found is not None
        return len(found["after"]["lines"])

    stored: Any = runs.stored_run
    once = lines()
    monkeypatch.setattr(runs, "stored_run", twice)
    assert lines() == once > 0


def test_a_baseline_whose_window_is_not_in_the_store_says_how_it_comes_there(world: World) -> None:
    from persona_pipeline.base.database import tables

    table = tables.evaluation_runs
    with world.store.begin() as connection:
        connection.execute(table.delete().where(table.c.window_end == BEFORE_THE_DRIFT))
    with client_of(viewing_app(world)) as client:
        page = client.get("/compare?agent=michael&dimension=adherence&claim=recognizable-from-words").text
    assert f"--as-of {BEFORE_THE_DRIFT.isoformat()}" in page


def test_a_suites_tests_by_verdict_and_page_by_page(reader: TestClient, seen: World) -> None:
    (run,) = runs.suite_runs(seen.store)
    assert f"/suite?run={run.id}&amp;verdict=failed" in reader.get("/suites").text
    assert "128 of 130 (95%–100%)" in reader.get(f"/suites?suite={run.suite}").text
    names = re.compile(r"<bdi>(t\d+)</bdi>")
    failed = reader.get(f"/suite?run={run.id}&verdict=failed").text
    assert names.findall(failed) == ["t128", "t129"]
    assert "&lt;b&gt;not ok&lt;/b&gt;" in failed and "timeout: no answer" in failed
    pages = [names.findall(reader.get(f"/suite?run={run.id}&page={page}").text) for page in (1, 2)]
    assert pages == [[f"t{n:03}" for n in range(100)], [f"t{n:03}" for n in range(100, 130)]]


def hostile_world(root: object) -> World:
    """Return a world in which every text is hostile, judged by a judge that quotes it."""
    from pathlib import Path

    from persona_pipeline.judging.verdict import Evidence, Verdict
    from persona_pipeline.testing import ScriptedJudge
    from tests.support.evaluating import evaluate_world

    builder = WorldBuilder(Path(str(root)))
    builder.persona("ann", HOSTILE, display_name=HOSTILE).persona("bob", "Bob.")
    builder.claim("adherence", "claim", f"{{{{agent_name}}}} {HOSTILE.replace('{{', '').replace('}}', '')}")
    for number in range(3):
        builder.say("ann", f"{HOSTILE} {number}", channel=HOSTILE[:120])
        builder.say("bob", HOSTILE, recipient="ann")
    world = builder.open()

    def answer(request: object) -> Verdict:
        quote = Evidence("m1", HOSTILE.split(" ")[0], verified=True)
        return Verdict("claim", score=1, reasoning=HOSTILE, evidence=(quote,), model=HOSTILE)

    evaluate_world(world, judge=ScriptedJudge(answer), dimensions=["adherence"])
    (run,) = runs.newest_runs(world.store, "ann")
    said = {message: (Role.OUT, [HOSTILE]) for message in world.messages() if message.agent_id == "ann"}
    write_verdicts(world, run.id, said, reason=HOSTILE)
    return world


def test_hostile_words_stand_there_as_text(tmp_path_factory: pytest.TempPathFactory) -> None:
    world = hostile_world(tmp_path_factory.mktemp("hostile"))
    addresses = ("/", "/agent?id=ann", "/messages", "/messages?verdict=out&q=script", "/message?id=m1")
    addresses += ("/compare?agent=ann&dimension=adherence&claim=claim", "/messages?q=%3Cscript%3E&claim=%22%3E%3Cb%3E")
    with client_of(viewing_app(world)) as client:
        for address in addresses:
            response = client.get(address)
            assert response.status_code == 200, address
            assert (
                response.text.count("<script") == 1 and "<img" not in response.text and "<iframe" not in response.text
            )
            assert not re.search(r"[\u202a-\u202e\u2066-\u2069\x00-\x08\x1b]", response.text), address
        assert "&lt;script&gt;alert(1)" in client.get("/messages").text
