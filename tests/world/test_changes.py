"""What a change adds, edits or removes, from git."""

import json
from pathlib import Path

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.testing.worlds import write_small_world
from persona_pipeline.world.changes import Change, changed_things
from persona_pipeline.world.speakers import missing_agents
from tests.support.pull_requests import git
from tests.support.worlds import write_yaml


def recording(name: str, score: int, key: str = "a") -> str:
    row = {"key": key * 64, "agent_id": "ann", "dimension": "adherence", "proposition_id": name, "score": score}
    return json.dumps(row) + "\n"


@pytest.fixture(params=["", "worlds/office"], ids=["the repository", "a folder of it"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = write_small_world(tmp_path / "repository" / request.param)
    (folder / "recordings" / "ann").mkdir(parents=True)
    (folder / "recordings" / "ann" / "adherence.jsonl").write_text(
        recording("kind", 7) + recording("dry", 8, "b"), "utf-8"
    )
    write_yaml(folder / "baselines" / "ann.json", {"agentId": "ann"})
    write_yaml(folder / "baselines" / "bob.json", {"agentId": "bob"})
    top = tmp_path / "repository"
    git(top, "init", "-q")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "before")
    return folder


def committed(root: Path) -> list[Change]:
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", "after")
    return changed_things(root, "HEAD^1")


def test_everything_is_named(root: Path) -> None:
    (root / "notes.txt").write_text("x", "utf-8")
    assert committed(root) == []
    for commit in ("no-such-thing", "--output=/tmp/x", "-h"):
        with pytest.raises(ConfigError):
            changed_things(root, commit)
    (root / "personas" / "bob.yaml").unlink()
    write_yaml(root / "personas" / "cat.yaml", {"display_name": "Cat", "persona": "A cat."})
    write_yaml(root / "baselines" / "ann.json", {"agentId": "ann", "dimensions": {}})
    claims = [{"id": "adherence-claim", "claim": "Other"}, {"id": "new", "claim": "New"}]
    write_yaml(
        root / "propositions" / "adherence" / "_default.yaml", {"dimension": "adherence", "propositions": claims}
    )
    write_yaml(root / "propositions" / "fluency" / "_default.yaml", {"dimension": "fluency", "propositions": []})
    path = root / "recordings" / "ann" / "adherence.jsonl"
    path.write_text(recording("kind", 9) + recording("wry", 1, "c"), "utf-8")
    (root / "suites").mkdir()
    (root / "suites" / "x.eval.yaml").write_text("tests: []", "utf-8")
    found = committed(root)
    assert [(item.what, item.name, item.kind.value) for item in found] == [
        ("baseline", "ann", "edited"),
        ("claim", "adherence/_default: adherence-claim", "edited"),
        ("claim", "adherence/_default: new", "added"),
        ("claim", "fluency/_default: fluency-claim", "removed"),
        ("persona", "bob", "removed"),
        ("persona", "cat", "added"),
        ("recordings", "ann/adherence", "edited"),
        ("suite", "x.eval.yaml", "added"),
    ]
    assert next(item.rows for item in found if item.what == "recordings") == (1, 1, 1)
    assert missing_agents(root) == ["bob"]


def test_a_files_other_settings_and_files_that_cannot_be_read_are_named_too(root: Path) -> None:
    path = root / "propositions" / "adherence" / "_default.yaml"
    content = json.loads(path.read_text("utf-8"))
    write_yaml(path, {**content, "hard": True})
    (root / "propositions" / "fluency" / "ann.yaml").write_text("{{{", "utf-8")
    (root / "recordings" / "ann" / "fluency.jsonl").write_text("broken\n", "utf-8")
    assert [(item.what, item.name, item.kind.value) for item in committed(root)] == [
        ("claims", "adherence/_default", "edited"),
        ("claims", "fluency/ann", "added"),
        ("recordings", "lines that cannot be read", "added"),
    ]


def test_all_that_decides_is_named_and_what_no_commit_should_bring(root: Path) -> None:
    def golden(score: float, conversation: list[int], windows: int) -> None:
        found = {"dimensions": {"adherence": score}, "provenance": {"dimensions": {"adherence": {"windows": windows}}}}
        messages = [{"end": "2026-03-01", "conversations": [conversation]}]
        write_yaml(root / "baselines" / "ann.json", {"agentId": "ann", "messages": messages, **found})

    golden(8.73, [9, 0, 0], 1)
    committed(root)
    golden(0.5, [1, 8, 0], 2)
    named = ("baselines/anchors.jsonl", "lexicons/agreement.xx.yaml", "nudges/a.yaml", "persona.yaml")
    for name in (*named, ".persona/store.db", "targets.yaml", "office.eval.yaml", "messages/.gitattributes"):
        write_yaml(root / name, {})
    write_yaml(root / "labels" / "adherence.jsonl", {"key": "a"}).write_text('{"id": "a"}\n{"id": "b"}\n', "utf-8")
    write_yaml(Path(git(root, "rev-parse", "--show-toplevel").strip()) / ".github" / "workflows" / "ci.yml", {})
    (root / "messages" / "more.jsonl").symlink_to("/etc/passwd")
    assert [(item.what, item.name, item.detail or item.rows) for item in committed(root)] == [
        ("anchors", "anchors.jsonl", (0, 0, 0)),
        (
            "baseline",
            "ann",
            "adherence 8.73 → 0.5, messages [{'end': '2026-03-01', 'conversations': [[9, 0, 0]]}] → "
            "[{'end': '2026-03-01', 'conversations': [[1, 8, 0]]}], provenance.dimensions.adherence.windows 1 → 2",
        ),
        ("labels", "adherence.jsonl", (0, 0, 2)),
        ("lexicon", "agreement.xx.yaml", (0, 0, 0)),
        ("link", "messages/more.jsonl", (0, 0, 0)),
        ("nudges", "a.yaml", (0, 0, 0)),
        ("settings", "messages/.gitattributes", (0, 0, 0)),
        ("settings", "persona.yaml", (0, 0, 0)),
        ("store", ".persona/store.db", (0, 0, 0)),
        ("suite", "office.eval.yaml", (0, 0, 0)),
        ("suite", "targets.yaml", (0, 0, 0)),
        ("workflow", ".github/workflows/ci.yml", (0, 0, 0)),
    ]


def test_no_repository_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="git cannot tell"):
        changed_things(tmp_path, "HEAD")
