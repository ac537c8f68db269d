"""Facts in a world: read once, recorded, priced and limited, shown in reports and on the page, marked as canon."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.errors import EXIT_BUDGET, EXIT_CONFIG, EXIT_COVERAGE, EXIT_OK, EXIT_REGRESSION, ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.cli.world.checking import check_world
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.evaluation.snapshot import load_replay, save_replay
from persona_pipeline.guard.report import Finding
from persona_pipeline.judging.verdict import Unscored
from persona_pipeline.reporting.render import render
from persona_pipeline.scoring.facts.known import known_facts, load_canon, mark_canon
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.testing.worlds import WorldBuilder
from persona_pipeline.world.messages.store import Selection, remove_messages, select_messages
from persona_pipeline.world.personas import agent_ids
from persona_pipeline.world.world import World
from tests.facts.standin import compared, extracted, reply
from tests.support.command_line import Cli, in_process
from tests.support.evaluating import evaluate_world, newest_run
from tests.support.messages_server import Call, MessagesServer, Reply, message
from tests.viewer.serving import client_of, viewing_app

FACTS = "facts: 4 of 4 conversations read, 6 facts, 1 contradictions"


def judge(**rules: Any) -> ScriptedJudge:
    return ScriptedJudge(lambda _: 7, reply=reply(**rules))


def of_facts(findings: list[Finding]) -> list[Finding]:
    return [item for item in findings if item.kind in ("contradiction", "facts")]


def test_a_contradiction_is_a_warning_with_both_lines_and_fails_where_that_is_asked_for(world: World) -> None:
    ask = judge()
    report = evaluate_world(world, judge=ask, agents=["ann"], facts=True)
    (found,) = of_facts(report.all_findings())
    assert found.exit_code == EXIT_OK
    for text in ("I am 34", "2026-03-02, m1", "I am 29", "2026-03-09, m4", "both cannot be"):
        assert text in found.message
    assert found.messages == ["m1", "m4"]
    for format in ("html", "markdown", "junit", "json"):
        assert "I am 29" in str(render(report, format))
    saved = newest_run(world.store, "ann")
    assert saved and of_facts(saved.findings) == [found]
    again = evaluate_world(world, judge=judge(), agents=["ann"], facts=True, only_fail_on=["contradiction"])
    assert again.exit_code == EXIT_REGRESSION
    assert not of_facts(evaluate_world(world, judge=judge(), agents=["ann"]).all_findings())


def test_only_what_was_said_in_the_window_is_new(world: World) -> None:
    report = evaluate_world(world, judge=judge(), agents=["ann"], facts=True, window="7d", as_of="2026-03-11T00:00:00Z")
    assert of_facts(report.all_findings())
    early = evaluate_world(world, judge=judge(), agents=["ann"], facts=True, as_of="2026-03-05T00:00:00Z")
    assert not of_facts(early.all_findings())


@pytest.mark.parametrize(("fail_on", "code"), [(None, EXIT_OK), (["contradiction"], EXIT_COVERAGE)])
def test_what_nobody_read_is_never_green(world: World, fail_on: list[str] | None, code: int) -> None:
    broken = judge(facts=lambda shown: Unscored.API_ERROR if "29" in str(shown) else extracted(shown))
    report = evaluate_world(world, judge=broken, agents=["ann"], facts=True, only_fail_on=fail_on)
    (found,) = of_facts(report.all_findings())
    assert "3 of 4 conversations read" in found.message and "cannot be told (scripted)" in found.message
    assert report.exit_code == (code if fail_on else report.exit_code)
    assert found.exit_code == EXIT_OK


def test_a_judge_that_answers_nothing_but_claims_is_an_error(world: World) -> None:
    class Claims:
        name, live = "mine", False
        judge = ScriptedJudge(lambda _: 7).judge

    with pytest.raises(ConfigError, match="'mine' answers nothing but claims"):
        evaluate_world(world, judge=Claims(), agents=["ann"], facts=True)


def test_a_saved_run_says_the_same_without_a_judge(world: World, tmp_path: Path) -> None:
    from persona_pipeline.evaluation.run import replayed

    run = run_evaluation(world, judge(), EvaluationRequest(agents=["ann"], facts=True))
    assert run.replay and f"ann: {FACTS}" in run.notes
    save_replay(tmp_path / "run.json", run.replay())
    again = replayed(load_replay(tmp_path / "run.json"))
    assert of_facts(again.report.all_findings()) == of_facts(run.report.all_findings())


def test_a_conversation_has_both_sides_in_direct_messages_too(tmp_path: Path) -> None:
    builder = WorldBuilder(tmp_path).persona("ann", "Ann is dry.").claim("adherence", "dry", "{{agent_name}} is dry")
    builder.say("eve", "Tell me: are you 34?", recipient="ann").say("ann", "Yes, I am.", recipient="eve")
    builder.say("eve", "Not for ann.", recipient="bob").say("ann", "I am 29, to the world.")
    ask = judge()
    evaluate_world(builder.open(), judge=ask, facts=True)
    shown = [[(row["speaker"], row["text"]) for row in json.loads(item.evidence)] for item in ask.questions]
    assert shown[:2] == [
        [("Speaker 1", "Tell me: are you 34?"), ("AGENT", "Yes, I am.")],
        [("AGENT", "I am 29, to the world.")],
    ]


def test_facts_of_messages_that_are_gone_are_gone(world: World) -> None:
    evaluate_world(world, judge=judge(), agents=["ann"], facts=True)
    with world.store.connect() as connection:
        assert {item.source for item in known_facts(connection, "ann")} == {"m1", "m3", "m4", "m5"}
    remove_messages(world.store, select_messages(world.store, Selection(ids=["m4"])))
    with world.store.connect() as connection:
        assert {item.source for item in known_facts(connection, "ann")} == {"m1", "m3", "m5"}


def answered(call: Call) -> Reply:
    shown = json.loads(call.evidence)
    rule = extracted if "speaker" in shown[0] else compared
    return message(json.dumps(rule(shown)))


@pytest.fixture
def cli(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return in_process(root, monkeypatch, capsys)


def test_the_command_reads_each_conversation_once_and_recordings_say_it_again(
    cli: Cli, root: Path, server: MessagesServer
) -> None:
    server.handler = answered
    priced = cli("facts", "ann", "--judge", "anthropic", "--estimate")
    assert priced.returncode == EXIT_OK and "4 calls" in priced.stdout and not server.paid
    unread = cli("facts", "ann")
    assert unread.returncode == EXIT_COVERAGE and "0 of 4 conversations read" in unread.stdout
    first = cli("facts", "ann", "--judge", "anthropic", "--record")
    assert (first.returncode, server.paid) == (EXIT_REGRESSION, 5)
    assert FACTS in first.stdout and "contradicts itself: “I am 34”" in first.stdout
    cli("facts", "ann", "--judge", "anthropic")
    shutil.rmtree(root / ".persona")
    replayed = cli("facts", "ann", "--format", "json")
    assert (replayed.returncode, server.paid) == (EXIT_REGRESSION, 5)
    (told,) = json.loads(replayed.stdout)["agents"]
    assert [item["value"] for item in told["facts"] if item["kind"] == "age"] == ["34", "29"]
    assert sorted(path.name for path in (root / "recordings").glob("*/*.jsonl")) == ["ann.jsonl", "ann.jsonl"]
    assert check_world(root).problems == []
    assert cli("facts", "ann", "--window", "1d", "--as-of", "2026-03-05T00:00:00Z").returncode == EXIT_OK


def test_what_the_budget_stops_is_told(cli: Cli, server: MessagesServer) -> None:
    server.handler = answered
    stopped = cli("facts", "ann", "--judge", "anthropic", "--max-usd", "0.000001")
    assert (stopped.returncode, server.paid) == (EXIT_BUDGET, 0)
    assert "0 of 4 conversations read" in stopped.stdout and "4 budget spent" in stopped.stdout


def test_a_call_that_fails_leaves_its_conversation_unread(cli: Cli, server: MessagesServer) -> None:
    server.handler = lambda call: message("no JSON") if "Leeds" in call.evidence else answered(call)
    told = cli("facts", "ann", "--judge", "anthropic")
    assert told.returncode == EXIT_COVERAGE
    assert "3 of 4 conversations read" in told.stdout and "1 invalid output" in told.stdout


def test_an_estimate_of_an_evaluation_counts_the_conversations(cli: Cli) -> None:
    calls = [
        int(cli("evaluate", "--agents", "ann", "--estimate", *more).stdout.split()[0]) for more in ((), ("--facts",))
    ]
    assert calls[1] - calls[0] == 4


CANON = "# what we know\ncanon:\n  - fact: She is 34.\n    kind: age\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("canon:\n- fact: ''\n", "ann.canon.yaml:2:9: canon.0.fact: must not be empty"),
        ("canon:\n- fact: x\n  kind: mood\n", "ann.canon.yaml:3:9: canon.0.kind: String should match pattern '^(age|"),
        ("canon:\n- fact: x\n  since: soon\n", "ann.canon.yaml:3:10"),
        ("canon:\n- fcat: x\n", "ann.canon.yaml:2:3"),
        ("- fact: x\n", "ann.canon.yaml:1:1"),
        ("canon: [", "ann.canon.yaml:2:1: is not valid YAML"),
    ],
)
def test_canon_that_is_not_valid_is_named_with_its_line(root: Path, world: World, text: str, said: str) -> None:
    path = root / "personas" / "ann.canon.yaml"
    path.write_text(text, encoding="utf-8")
    assert any(said in str(problem) for problem in check_world(root).problems)
    with pytest.raises(ConfigError, match=r"ann\.canon\.yaml:"):
        evaluate_world(world, judge=judge(), agents=["ann"], facts=True)


def test_a_contradiction_with_canon_names_file_and_line(root: Path, world: World) -> None:
    (root / "personas" / "ann.canon.yaml").write_text(CANON, encoding="utf-8")
    assert agent_ids(root) == ["ann", "bob"] and check_world(root).problems == []
    before = world.sync_persona("ann").hash
    report = evaluate_world(world, judge=judge(), agents=["ann"], facts=True)
    told = [item.message for item in of_facts(report.all_findings())]
    assert any(
        "contradicts what is canon: “She is 34.” (personas/ann.canon.yaml:3), then “I am 29”" in text for text in told
    )
    assert world.sync_persona("ann").hash == before


def test_a_fact_is_marked_once_and_what_stands_in_the_file_stays(cli: Cli, root: Path, world: World) -> None:
    evaluate_world(world, judge=judge(), agents=["ann"], facts=True)
    with world.store.connect() as connection:
        fact = next(item for item in known_facts(connection, "ann") if item.kind == "family")
    path = root / "personas" / "ann.canon.yaml"
    path.write_text(CANON, encoding="utf-8")
    for _ in range(2):
        done = cli("facts", "ann", "--canon", fact.id)
        assert (done.returncode, str(path) in done.stdout) == (EXIT_OK, True)
    assert path.read_text(encoding="utf-8") == (
        CANON + '  - fact: "sister\'s name: Anna"\n    kind: family\n    since: 2026-03-04\n'
    )
    assert [item.value for item in load_canon(root, "ann")] == ["She is 34.", "sister's name: Anna"]
    missing = cli("facts", "ann", "--canon", "0000")
    assert missing.returncode == EXIT_CONFIG and "has no fact '0000'" in missing.stderr
    path.write_text(CANON + "more: 1\n", encoding="utf-8")
    with pytest.raises(ConfigError):
        mark_canon(root, "ann", fact)
    assert path.read_text(encoding="utf-8") == CANON + "more: 1\n"


def test_the_page_lists_facts_with_links_and_marks_canon(world: World) -> None:
    client = client_of(viewing_app(world))
    assert "No facts are known" in client.get("/facts?agent=ann").text
    evaluate_world(world, judge=judge(), agents=["ann"], facts=True)
    page = client.get("/facts?agent=ann").text
    assert 'href="/message?id=m4"' in page and "family: sister&#39;s name: Anna" in page
    assert "contradicts itself" in client.get("/agent?id=ann").text
    with world.store.connect() as connection:
        fact = next(item for item in known_facts(connection, "ann") if item.kind == "home")
    assert client.post("/canon?agent=ann", data={"fact": fact.id}).headers["location"] == "/facts?agent=ann"
    assert [item.value for item in load_canon(world.root, "ann")] == ["where it lives: Leeds"]
    assert page.count("Mark as canon") - client.get("/facts?agent=ann").text.count("Mark as canon") == 1
    for agent, wrong in (("ann", "0000"), ("../ann", fact.id), ("nobody", fact.id)):
        assert client.post(f"/canon?agent={agent}", data={"fact": wrong}).status_code == 409
