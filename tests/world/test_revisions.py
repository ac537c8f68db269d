"""A world as it stands in a commit, read as data."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.evaluation.folder import folder_inputs
from persona_pipeline.lab.versions import Commits
from persona_pipeline.testing.worlds import write_small_world
from persona_pipeline.world.messages.store import read_messages
from persona_pipeline.world.models import Window
from persona_pipeline.world.revisions import find_revision, read_blobs, revisions_between, tree_of, write_files
from persona_pipeline.world.world import World
from tests.support.pull_requests import git

ANN = "personas/ann.yaml"


@pytest.fixture(params=["", "worlds/office"], ids=["the repository", "a folder of it"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = write_small_world(tmp_path / "repository" / request.param)
    top = tmp_path / "repository"
    git(top, "init", "-q", "-b", "main")
    commit(top, "Begin")
    return folder


def commit(root: Path, subject: str) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", subject)


def test_files_of_a_commit_are_those_of_the_folder(root: Path) -> None:
    before = (root / ANN).read_bytes()
    (root / ANN).write_text("changed and not committed", encoding="utf-8")
    with Commits(root) as commits:
        folder = commits.named("HEAD").root
        assert (folder / ANN).read_bytes() == before
        assert not (folder / ".git").exists()
    assert not folder.exists()
    assert (root / ANN).read_text("utf-8") == "changed and not committed"


def test_only_commits_that_touch_a_world_are_listed(root: Path) -> None:
    (root / "notes.txt").write_text("x", "utf-8")
    commit(root, "Notes")
    (root / ANN).write_text("display_name: Ann\npersona: Other\n", "utf-8")
    commit(root, "Other Ann")
    found = revisions_between(root, "HEAD~2", "HEAD", ["personas"])
    assert [item.subject for item in found] == ["Begin", "Other Ann"]
    assert [item.subject for item in revisions_between(root, "HEAD", "HEAD", ["personas"])] == ["Other Ann"]


def test_what_is_no_commit_and_commits_that_do_not_follow_one_another_are_refused(root: Path) -> None:
    for name in ("", "-x", "--output=x", "nowhere"):
        with pytest.raises(ConfigError):
            find_revision(root, name)
    git(root, "checkout", "-q", "-b", "other")
    commit(root, "Beside")
    git(root, "checkout", "-q", "main")
    commit(root, "Ahead")
    with pytest.raises(ConfigError, match="is no ancestor of"):
        revisions_between(root, "other", "main", ["personas"])


def test_neither_links_nor_filters_of_a_commit_do_anything(root: Path, tmp_path: Path) -> None:
    """A stranger's commit names a program of the reader's configuration, and a link out of the repository."""
    ran = tmp_path / "ran"
    git(root, "config", "filter.evil.smudge", f"touch {ran}; cat")
    (root / ".gitattributes").write_text("*.yaml filter=evil\npersonas/bob.yaml export-ignore\n", "utf-8")
    (tmp_path / "secret.yaml").write_text("display_name: S\npersona: Secret\n", "utf-8")
    Path(root / "personas" / "eve.yaml").symlink_to(tmp_path / "secret.yaml")
    commit(root, "Evil")
    with Commits(root) as commits:
        folder = commits.named("HEAD").root
        assert sorted(path.name for path in (folder / "personas").iterdir()) == ["ann.yaml", "bob.yaml"]
    assert not ran.exists()


def test_a_path_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leads out"):
        write_files({"../x": b""}, tmp_path / "folder")


def test_blobs_come_in_order_whatever_is_in_them(root: Path) -> None:
    (root / "messages" / "odd.jsonl").write_bytes(b"\n\n0 blob 3\n")
    (root / "messages" / "none.jsonl").write_bytes(b"")
    commit(root, "Odd")
    tree = tree_of(root, "HEAD", ["messages"])
    assert read_blobs(root, tree.values()) == [(root / path).read_bytes() for path in tree]


def test_a_folder_reads_like_a_world(root: Path) -> None:
    (root / ANN).write_text('{"display_name": "Ann", "persona": "A.", "aliases": ["annie"]}', "utf-8")
    line = (
        '{"id": "x", "agent_id": "annie", "channel": "general", "text": "Hi", "created_at": "2026-03-12T09:00:00Z"}\n'
    )
    (root / "messages" / "more.jsonl").write_text(f"{line}no JSON\n", "utf-8")
    world, folder = World.open(root), folder_inputs(root)
    world.sync()
    window = Window(*(message.created_at for message in (world.messages()[-1], world.messages()[1])))
    cases: list[dict[str, Any]] = [{}, {"agent_id": "ann"}, {"window": window, "agent_id": "bob"}]
    for asked in cases:
        assert folder.messages.within(**asked) == world.messages(**asked)
    assert list(folder.generated.messages) == read_messages(world.store, synthetic=True)
    assert folder.messages.newest == world.newest_message_time()
    assert folder.names.items() <= world.display_names().items()


def test_a_repository_without_the_world_is_said(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    with pytest.raises(ConfigError):
        find_revision(tmp_path, "HEAD")
