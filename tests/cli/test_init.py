"""A new world: valid at once, and nothing of anybody's is overwritten."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from persona_pipeline.base.documents.yaml import parse_document
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.cli.world.checking import check_world
from persona_pipeline.cli.world.setup import _agent_id, _own
from persona_pipeline.scoring.text.agreement import language_of
from persona_pipeline.world import World
from persona_pipeline.world.personas import is_agent_id, is_name, load_persona
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS
from persona_pipeline.world.world import template_world, write_new
from tests.support.command_line import apart, in_process
from tests.support.evaluating import planned_requests
from tests.support.languages import LANGUAGES
from tests.support.worlds import replace_in


def test_a_new_world_is_valid_and_has_something_to_judge_in_every_dimension(tmp_path: Path) -> None:
    root = tmp_path / "new" / "world"
    write_new(root, template_world())
    assert ".persona/" in (root / ".gitignore").read_text(encoding="utf-8").split()
    assert not (root / "gitignore").exists()
    checked = check_world(root)
    assert (checked.problems, checked.warnings) == ([], [])
    with pytest.raises(ConfigError, match="language 'sw'; choose one of ar, de, en, es, fr, it, ja, nl, pt, zh"):
        template_world("sw")
    world = World.open(root)
    asked = planned_requests(world, EvaluationRequest())
    world.store.close()
    assert {item.dimension for item in asked} == set(ALL_DIMENSIONS)
    assert {item.agent_id for item in asked} == {"mira", "otto"}
    assert all(item.trajectory.entries for item in asked)


def shapes(texts: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """What claims are but for their words, by file."""
    words = ("claim", "recommendations_for_improvement")
    return {
        path: [
            {key: value for key, value in item.items() if key not in words}
            for item in (document, *document.pop("propositions"))
        ]
        for path, text in texts.items()
        if path.startswith("propositions/")
        for document in [parse_document(text, path).data]
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_claims_of_every_language_are_the_same_claims(language: str, tmp_path: Path) -> None:
    english, texts = template_world(), template_world(language)
    assert {*texts} == {*english}
    assert shapes(texts) == shapes(english)
    rows = [[json.loads(line) for line in found["messages/team.jsonl"].splitlines()] for found in (english, texts)]
    assert [row | {"text": ""} for row in rows[0]] == [row | {"text": ""} for row in rows[1]]
    assert language_of([row["text"] for row in rows[1]]) == language
    for path, text in texts.items():
        if path.startswith(("propositions/", "personas/")):
            document = parse_document(text, path).data
            said = [document["persona"]] if "persona" in document else []
            for item in document.get("propositions", ()):
                said += [item["claim"], item["recommendations_for_improvement"]]
            assert language_of(said) in (language, "unknown"), path
            assert (text == english[path]) == (language == "en")
    write_new(tmp_path / "w", texts)
    checked = check_world(tmp_path / "w")
    assert (checked.problems, checked.warnings) == ([], [])


def test_nothing_is_overwritten_and_nothing_else_is_written(tmp_path: Path) -> None:
    for taken in ("README.md", "personas/mira.yaml", ".gitignore"):
        precious = tmp_path / taken.replace("/", "-") / taken
        precious.parent.mkdir(parents=True)
        precious.write_text("mine", encoding="utf-8")
        root = tmp_path / taken.replace("/", "-")
        with pytest.raises(ConfigError, match=f"{taken}: exists already"):
            write_new(root, template_world())
        assert [path for path in root.rglob("*") if path.is_file()] == [precious]
        assert precious.read_text(encoding="utf-8") == "mine"
    (tmp_path / "messages").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="exists already"):
        write_new(tmp_path, {"messages": ""})
    assert not (tmp_path / "nowhere").exists()


def test_what_fails_midway_leaves_nothing_of_it_and_all_that_was_there(tmp_path: Path) -> None:
    root = tmp_path / "world"
    root.mkdir()
    (root / "notes.txt").write_text("mine", encoding="utf-8")
    # A file's name is too long for any disk.
    texts = {"a.txt": "1", "new/deep/b.txt": "2", f"{'x' * 300}.txt": "3"}
    for place in (root, root / "notes.txt"):
        with pytest.raises(ConfigError, match="cannot be written"):
            write_new(place, texts)
    assert [path.name for path in root.rglob("*")] == ["notes.txt"]


def test_the_command_says_what_comes_next(tmp_path: Path) -> None:
    done = apart("init", str(tmp_path / "w"))
    assert done.returncode == 0, done.stderr
    assert "persona-pipeline validate" in done.stdout
    assert (tmp_path / "w" / "personas" / "mira.yaml").exists()


def test_a_persona_that_is_not_described_is_refused_before_it_is_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {"id": "m1", "agent_id": "zoe", "channel": "desk", "text": "Hello.", "created_at": "2026-06-01T09:00:00Z"}
    (tmp_path / "chat.jsonl").write_text(json.dumps(said), encoding="utf-8")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    cli = in_process(tmp_path / "world", monkeypatch, capsys)
    cli("init", str(tmp_path / "world"), "--agent", "Zoe", "--messages", str(tmp_path / "chat.jsonl"))
    (tmp_path / "world" / "personas" / "yak.yaml").write_text("nonsense: 1\n", encoding="utf-8")
    done = cli("evaluate", "--judge", "anthropic")
    assert done.returncode == 2 and "yak.yaml:1:1" in done.stderr
    done = cli("evaluate", "--agents", "zoe", "--judge", "anthropic")
    assert done.returncode == 2 and "zoe.yaml: persona is still the text of a new world" in done.stderr
    assert cli("evaluate", "--agents", "zoe").returncode == 3, "a replay costs nothing"


SAID = {"id": "m1", "agent_id": "brack", "channel": "c", "text": "Hello", "created_at": "2026-01-01T00:00:00Z"}


def test_messages_that_cannot_be_read_leave_the_world_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "chats.jsonl").write_text(json.dumps(SAID) + "\nbroken\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    run = in_process(tmp_path, monkeypatch, capsys)
    done = run("init", "w", "--agent", "Brack", "--messages", "chats.jsonl")
    assert (done.returncode, "chats.jsonl:2" in done.stderr, "1 added" in done.stdout) == (2, True, True)
    written = (tmp_path / "w" / "messages" / "imported.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line) for line in written.splitlines()] == [SAID], "a clone has the messages"
    done = run("init", "v", "--agent", "Brack", "--messages", "gone.jsonl")
    assert done.returncode == 2
    assert "gone.jsonl: does not exist" in done.stderr and "persona-pipeline ingest" in done.stderr
    assert (tmp_path / "v" / "personas" / "brack.yaml").exists()


def test_messages_that_name_the_agent_instead_of_its_id_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "chats.jsonl").write_text(json.dumps(SAID | {"agent_id": "Brack O."}) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    run = in_process(tmp_path, monkeypatch, capsys)
    assert run("init", "w", "--agent", "Brack O.", "--messages", "chats.jsonl").returncode == 0
    replace_in(tmp_path / "w" / "personas" / "brack-o.yaml", "Say here who", "Nobody knows who")
    monkeypatch.setenv("PERSONA_ROOT", str(tmp_path / "w"))
    done = run("evaluate", "--window", "all", "--format", "json")
    assert json.loads(done.stdout)["agents"]["brack-o"]["sample_size"] == 1, done.stderr


@pytest.mark.parametrize(
    "name", ["Brack", "Otto", "O'Neill: the #2", "yes", "1e5", "ブラック", "{{agent_name}}", "Ü" * 200]
)
def test_a_world_under_any_name_is_valid(name: str, tmp_path: Path) -> None:
    agent_id = _agent_id(name)
    write_new(tmp_path, _own(template_world(), name, agent_id))
    checked = check_world(tmp_path)
    assert checked.problems == []
    assert [path.stem for path in (tmp_path / "personas").iterdir()] == [agent_id]
    persona = load_persona(tmp_path, agent_id)
    assert persona.display_name == name
    assert name in persona.persona


@given(name=st.text(min_size=1, max_size=256).filter(is_name))
@example(name="-")
def test_every_name_makes_an_id_and_files_that_say_it(name: str) -> None:
    agent_id = _agent_id(name)
    assert is_agent_id(agent_id)
    made = _own(template_world(), name, agent_id)
    assert {path for path in made if "personas/" in path or "messages/" in path} == {f"personas/{agent_id}.yaml"}


def test_a_clone_sees_messages_that_ingest_wrote_into_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world, export = tmp_path / "w", tmp_path / "chats.jsonl"
    export.write_text(json.dumps(SAID | {"agent_id": "Micheal"}) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    run = in_process(world, monkeypatch, capsys)
    assert run("init", "w", "--agent", "Michael", "--yes").returncode == 0
    monkeypatch.setenv("PERSONA_ROOT", str(world))
    command = ("ingest", "chats.jsonl", "--map", "Micheal=michael", "--output", "w/messages/week.jsonl")
    assert run(*command).returncode == 0
    assert json.loads((world / "messages" / "week.jsonl").read_text(encoding="utf-8"))["agent_id"] == "michael"
    again = run(*command)
    assert (again.returncode, "exists already" in again.stderr) == (2, True)
    changed = json.dumps(SAID | {"text": "Something else."})
    (world / "messages" / "other.jsonl").write_text(f"{changed}\n", encoding="utf-8")
    checked = run("validate")
    assert (checked.returncode, f"id '{SAID['id']}' is taken in" in checked.stderr) == (2, True)
