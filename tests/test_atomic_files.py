"""Files that are replaced whole: what is no regular file is not replaced, and what it was stays."""

import os
import stat
import threading
from pathlib import Path

import pytest

from persona_pipeline.base.documents.json import write_atomically


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    kept, link, dangling = tmp_path / "kept" / "a.json", tmp_path / "a.json", tmp_path / "b.json"
    kept.parent.mkdir()
    kept.write_text("old", "utf-8")
    link.symlink_to(kept)
    dangling.symlink_to(tmp_path / "not yet" / "b.json")
    for path in (link, dangling):
        write_atomically(path, "new")
        assert path.is_symlink() and path.resolve().read_text("utf-8") == "new"
    assert sorted(kept.parent.iterdir()) == [kept], "nothing is left behind"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_the_mode_that_was_there_is_kept(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a.json"
    path.touch()
    path.chmod(mode)
    write_atomically(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == mode and path.read_text("utf-8") == "new"


def test_a_new_file_can_be_read_by_everybody(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a" / "b.json", "new")
    assert stat.S_IMODE((tmp_path / "a" / "b.json").stat().st_mode) == 0o644


def test_a_named_pipe_is_written_through_to(tmp_path: Path) -> None:
    pipe, said = tmp_path / "pipe", []
    os.mkfifo(pipe)
    content = b"x" * 200_000
    reader = threading.Thread(target=lambda: said.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_atomically(pipe, content)
    reader.join(10)
    assert said == [content] and stat.S_ISFIFO(pipe.stat().st_mode) and list(tmp_path.iterdir()) == [pipe]


def test_a_device_is_written_through_to(tmp_path: Path) -> None:
    """As ``--output /dev/null`` by root, on a device of the test's own."""
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.read_bytes()
    except OSError:
        pytest.skip("no device can be made here")
    write_atomically(device, "gone")
    assert stat.S_ISCHR(device.lstat().st_mode) and list(tmp_path.iterdir()) == [device]
