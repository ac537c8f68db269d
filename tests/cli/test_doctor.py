"""What doctor finds, and that everything wrong comes with a remedy."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from persona_pipeline.base.settings import Settings
from persona_pipeline.cli.world import doctor as command
from persona_pipeline.cli.world.doctor import diagnose, doctor
from persona_pipeline.judging.model.probe import PLAIN_CLAIMS, ProbeFinding, ProbeLevel
from tests.support.forking import forked_python
from tests.support.messages_server import Call, Hang, MessagesServer, Reply, message, status, verdicts
from tests.support.waiting import PATIENCE
from tests.support.worlds import write_jsonl

RETIRING = {"lifecycle": "deprecated", "retires_at": "2026-11-25T00:00:00Z"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MessagesServer]:
    with MessagesServer() as running:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", running.url)
        yield running


def look(root: Path, **settings: object) -> dict[str, ProbeFinding]:
    found = diagnose(Settings(root=root, **settings), dagster=False)  # pyright: ignore[reportArgumentType]
    assert all(finding.remedy for finding in found if finding.level is not ProbeLevel.OK)
    assert all(finding.said for finding in found)
    return {finding.name: finding for finding in found}


def test_all_is_well(sample_root: Path, server: MessagesServer) -> None:
    found = look(sample_root)
    assert "window 7d (default)" in found["settings"].said and "threshold" not in found["settings"].said
    # Nobody's voice is learnt yet.
    assert all(finding.level is ProbeLevel.OK for finding in found.values())
    assert list(found) == [
        *("world", "settings", "database", "messages", "recordings", "key", "model"),
        *("structured output", "judging", "caching", "obedience"),
    ]
    assert "michael" in found["world"].said
    assert server.problems == []


def test_what_is_wrong_is_named_with_its_place_and_without_a_password(small_root: Path, server: MessagesServer) -> None:
    (small_root / "personas" / "bob.yaml").write_text("agent_id: bob\nnickname: P\n", encoding="utf-8")
    write_jsonl(small_root / "recordings" / "bad.jsonl", [{}])
    server.__exit__()
    found = look(small_root, database_url="postgresql://user:s3cret@127.0.0.1:1/db")
    assert {name for name, finding in found.items() if finding.level is ProbeLevel.ERROR} == {
        *("world", "recordings", "database", "endpoint")
    }
    assert "bob.yaml:" in found["world"].said and "bad.jsonl:1" in found["recordings"].said
    assert "127.0.0.1" in found["database"].said and "s3cret" not in found["database"].said
    assert "structured output" not in found


def test_no_key_is_a_note_and_nothing_is_called(small_root: Path) -> None:
    found = look(small_root)
    assert (found["key"].level, "ANTHROPIC_API_KEY" in found["key"].remedy) == (ProbeLevel.NOTE, True)
    assert "model" not in found


def test_the_judge_of_the_worlds_file_is_the_one_that_is_looked_at(small_root: Path) -> None:
    (small_root / "persona.yaml").write_text("judge: {provider: openai, model: gpt-5-mini}\n", encoding="utf-8")
    assert "OPENAI_API_KEY" in look(small_root)["key"].remedy
    (small_root / "persona.yaml").write_text("judge: {provider: nobody}\n", encoding="utf-8")
    assert "'nobody'" in look(small_root)["judge"].said
    (small_root / "persona.yaml").write_text("judge: {provider: openai}\nwindows: 3d\n", encoding="utf-8")
    found = look(small_root)
    assert found["settings"].level is ProbeLevel.ERROR
    assert "ANTHROPIC_API_KEY" in found["key"].remedy, "the rest is looked at all the same"


def test_a_folder_without_personas_is_no_world(tmp_path: Path) -> None:
    found = look(tmp_path)
    assert found["world"].level is ProbeLevel.ERROR
    assert "persona-pipeline init" in found["world"].remedy
    assert found["recordings"].level is ProbeLevel.NOTE


@pytest.mark.parametrize(
    ("reply", "name", "level", "said"),
    [
        (status(401, "authentication_error"), "key", ProbeLevel.ERROR, "refuses the key (HTTP 401)"),
        (status(403, "permission_error"), "key", ProbeLevel.ERROR, "refuses the key (HTTP 403)"),
        (status(404, "not_found_error"), "model", ProbeLevel.NOTE, "does not describe its models"),
        (status(400, "invalid_request_error"), "model", ProbeLevel.ERROR, "answers HTTP 400"),
        ({"lifecycle": "retired"}, "model", ProbeLevel.ERROR, "claude-haiku-5-5 is retired"),
        (RETIRING, "model", ProbeLevel.NOTE, "retires on 2026-11-25"),
        ({"lifecycle": "deprecated"}, "model", ProbeLevel.NOTE, "is deprecated"),
        ({"retires_at": "2199-01-01T00:00:00Z"}, "model", ProbeLevel.OK, "retires on 2199-01-01"),
    ],
    ids=range(8),
)
def test_what_the_endpoint_says_of_its_model(
    reply: object, name: str, level: ProbeLevel, said: str, small_root: Path, server: MessagesServer
) -> None:
    server.models = reply  # pyright: ignore[reportAttributeAccessIssue]
    found = look(small_root)[name]
    assert (found.level, said in found.said) == (level, True), found.said


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (message("babble babble"), "the answer is no verdict"),
        (message(None, stop_reason="refusal"), "a test call failed: the model refused"),
    ],
    ids=["babble", "refusal"],
)
def test_a_judge_that_cannot_judge(outcome: Reply, said: str, small_root: Path, server: MessagesServer) -> None:
    server.always(outcome)
    found = look(small_root)["structured output"]
    assert (found.level, said in found.said) == (ProbeLevel.ERROR, True), found.said


def constant(server: MessagesServer, score: int, quote: str = "") -> Callable[[Call], Reply]:
    """Answer every claim alike, in valid JSON; ``quote``: what is quoted instead of the transcript."""

    def reply(call: Call) -> Reply:
        data = verdicts(call.body)
        for item in data["verdicts"]:
            item["score"] = score
            if quote:
                item["evidence"] = [{"message": "m1", "quote": quote}]
        return message(json.dumps(data))

    return reply


@pytest.mark.parametrize(
    ("score", "quote", "said"),
    [
        (7, "", "'Robin warmly praises a colleague for a cake', which is plainly false, gets 7 of 9"),
        (0, "", "'Robin says that the fern has been watered', which is plainly true, gets 0 of 9"),
        (5, "", "'Robin neither apologises nor thanks anybody', which is plainly true, gets 5 of 9"),
        (9, "I never said that", "4 of its 4 quotes are not in the transcript"),
    ],
    ids=["always seven", "always nothing", "always the middle", "made-up quotes"],
)
def test_a_judge_whose_answers_are_worth_nothing(
    score: int, quote: str, said: str, small_root: Path, server: MessagesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSONA_ROOT", str(small_root))
    server.handler = constant(server, score, quote)
    app = typer.Typer()
    app.command()(doctor)
    told = CliRunner().invoke(app, ["--no-dagster"])
    assert (told.exit_code, said in told.stdout) == (3, True), told.stdout
    assert "cannot judge" in told.stdout


def test_a_judge_that_goes_by_the_tone_of_a_claim_is_found_out(small_root: Path, server: MessagesServer) -> None:
    unfriendly = re.compile(r"lost|refuses|neither|nor ")

    def by_tone(call: Call) -> Reply:
        data = verdicts(call.body)
        asked = json.dumps(call.body["messages"][-1])
        [claim] = [claim for claim in PLAIN_CLAIMS if claim in asked] or [""]
        for item in data["verdicts"]:
            item["score"] = 1 if unfriendly.search(claim) else 8
        return message(json.dumps(data))

    server.handler = by_tone
    found = look(small_root)["judging"]
    assert (found.level, found.cannot_judge) == (ProbeLevel.ERROR, True)
    assert "neither apologises" in found.said and "warmly praises" in found.said and "watered" not in found.said


def test_a_judge_that_hangs(small_root: Path, server: MessagesServer) -> None:
    server.script(*[Hang()] * 4)
    found = look(small_root, judge_deadline=0.3)["structured output"]
    assert (found.level, "no answer within the deadline of 0.3 s" in found.said) == (ProbeLevel.ERROR, True)
    assert "set PERSONA_JUDGE_DEADLINE higher" in found.remedy
    assert len(server.calls) <= 4


def test_a_server_without_structured_output_or_caching(small_root: Path, server: MessagesServer) -> None:
    server.structured_output = False

    def plain(call: Call) -> Reply:
        """A good answer from a server that caches nothing."""
        return message(json.dumps(verdicts(call.body)), usage={"input_tokens": 900, "output_tokens": 20})

    server.handler = lambda call: message(None) if "output_config" in call.body else plain(call)
    found = look(small_root)
    assert found["structured output"].level is ProbeLevel.NOTE
    assert "prompted JSON" in found["structured output"].said
    assert found["caching"].level is ProbeLevel.NOTE


def test_dagster_is_asked_in_a_process_of_its_own(
    small_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", encoding="utf-8")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setattr(sys, "executable", forked_python())
    *_, found = diagnose(Settings(root=small_root), calls=False)
    assert (found.name, found.level) == ("dagster", ProbeLevel.OK)
    assert "0 runs" in found.said


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import time; time.sleep(60)", "no answer in 0.3 s"),
        ("raise SystemExit('storage: expected a mapping')", "storage: expected a mapping"),
    ],
)
def test_a_dagster_that_hangs_or_fails_is_named(
    script: str, said: str, small_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_ASK_DAGSTER", ("-S", "-c", script))
    monkeypatch.setattr(command, "_DAGSTER_SECONDS", 0.3 if "sleep" in script else PATIENCE)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    *_, found = diagnose(Settings(root=small_root), calls=False)
    assert (found.name, found.level, found.said) == ("dagster", ProbeLevel.ERROR, said)
    assert "sleep" in script or str(tmp_path / "dagster.yaml") in found.remedy


@pytest.mark.parametrize(("broken", "code"), [(False, 0), (True, 2)])
def test_the_exit_code_and_the_forms_of_output(
    broken: bool, code: int, small_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSONA_ROOT", str(small_root))
    if broken:
        write_jsonl(small_root / "recordings" / "bad.jsonl", [{}])
    app = typer.Typer()
    app.command()(doctor)
    text = CliRunner().invoke(app, ["--no-dagster", "--no-calls"])
    data = CliRunner().invoke(app, ["--no-dagster", "--no-calls", "--json"])
    assert (text.exit_code, data.exit_code) == (code, code)
    assert text.stdout.startswith("ok    world")
    assert '"name": "recordings"' in data.stdout
