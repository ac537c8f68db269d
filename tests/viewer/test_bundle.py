"""Pages to send: every link leads somewhere, nothing comes from elsewhere, and nothing of anybody else's is overwritten."""

import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli.app import app
from persona_pipeline.reporting.html import page_policy
from persona_pipeline.testing import WorldBuilder
from persona_pipeline.viewer import bundle
from persona_pipeline.viewer.bundle import page_names, write_bundle
from persona_pipeline.world.world import World
from tests.viewer.serving import client_of, viewing_app
from tests.viewer.test_messages import ids
from tests.viewer.test_runs import hostile_world


def read(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in folder.iterdir()}


def looks(folder: Path) -> dict[Path, tuple[int, int, int]]:
    """Which file stands where, how large it is and when it was written; reading it changes nothing of that."""
    found = {path: path.lstat() for path in folder.rglob("*")}
    return {path: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


class Tags(HTMLParser):
    """The elements of a page, each with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def check(pages: dict[str, str]) -> None:
    """Fail where a page needs what is not there."""
    for name, text in pages.items():
        found = Tags(text).found
        assert not {tag for tag, _ in found} & {"script", "form", "iframe", "img", "link", "button", "object"}, name
        names = {name for _, attributes in found for name in attributes}
        assert not [name for name in names if name in ("src", "style", "action") or name.startswith("on")]
        hrefs = {attributes["href"] or "" for _, attributes in found if "href" in attributes}
        here = {f"#{attributes['id']}" for _, attributes in found if "id" in attributes}
        assert hrefs <= {*pages, *here}, name
        (style,) = re.findall("<style>(.*?)</style>", text, re.DOTALL)
        assert not re.search(r"@import|url\(", style)
        (policy,) = (attributes["content"] for _, attributes in found if "http-equiv" in attributes)
        assert policy == page_policy(style)


def test_the_pages_say_what_view_says_and_every_link_leads_somewhere(seen: World, tmp_path: Path) -> None:
    written = write_bundle(seen, tmp_path / "sent")
    pages = read(tmp_path / "sent")
    names = [f"agent-{name}.html" for name in ("michael", "dwight", "jim", "pam")]
    assert [path.name for path in written] == ["index.html", *names]
    assert set(pages) == {path.name for path in written}
    check(pages)
    assert "3 in character, 1 drifted" in pages["index.html"]
    with client_of(viewing_app(seen)) as client:
        for agent in ("michael", "pam"):
            lists = (client.get(f"/messages?agent={agent}&verdict={verdict}").text for verdict in ("out", "unclear"))
            bad = [name for text in lists for name in ids(text)]
            assert re.findall("<code>(.*?)</code>", pages[f"agent-{agent}.html"]) == bad != []
    assert '<mark class="quoted">Great work, Pam. I completely agree.</mark>' in pages["agent-michael.html"]
    assert "None is known. No message of this agent has a verdict." in pages["agent-dwight.html"]


def test_a_page_shows_so_many_and_says_that_there_are_more(seen: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.search(r"All \d\d\.", bundle.bundle_pages(seen)["agent-michael.html"])
    monkeypatch.setattr(bundle, "MOST", 5)
    page = bundle.bundle_pages(seen)["agent-michael.html"]
    assert "The worst 5; there are more." in page and page.count('class="card message out"') == 5


def test_hostile_words_stand_there_as_text(tmp_path: Path) -> None:
    world = hostile_world(tmp_path / "hostile")
    write_bundle(world, tmp_path / "sent")
    pages = read(tmp_path / "sent")
    check(pages)
    assert "&lt;script&gt;alert(1)" in pages["agent-ann.html"]


def test_where_nothing_was_evaluated_the_pages_say_so(tmp_path: Path) -> None:
    world = WorldBuilder(tmp_path / "world").persona("ann", "Ann is dry and brief.").open()
    write_bundle(world, tmp_path / "sent")
    pages = read(tmp_path / "sent")
    check(pages)
    assert "No agent has been evaluated yet" in pages["index.html"]
    assert "Never evaluated" in pages["agent-ann.html"]


REFUSED: dict[str, Callable[[Path], object]] = {
    "notes.txt": lambda folder: (folder / "notes.txt").write_text("mine", "utf-8"),
    "index.html": lambda folder: (folder / "index.html").write_text("<!doctype html><title>mine</title>", "utf-8"),
    "agent-ann.html": lambda folder: (folder / "agent-ann.html").write_text("", "utf-8"),
    "pictures": lambda folder: (folder / "pictures").mkdir(),
    ".git": lambda folder: (folder / ".git").mkdir(),
    "index.htm": lambda folder: (folder / "index.htm").symlink_to(folder / "index.html"),
}


def test_a_folder_with_anything_else_is_left_alone(seen: World, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_bundle(seen, tmp_path / "earlier")
    for start in ("empty", "earlier"):
        for name, put in REFUSED.items():
            folder = Path(shutil.copytree(tmp_path / start, tmp_path / f"{start}, {name}"))
            put(folder)
            before = looks(folder)
            with pytest.raises(ConfigError, match=f"{re.escape(name)}.*no bundle wrote it.*--bundle"):
                write_bundle(seen, folder)
            assert looks(folder) == before


def test_a_file_is_no_folder(seen: World, tmp_path: Path) -> None:
    (tmp_path / "sent").write_text("mine", "utf-8")
    with pytest.raises(ConfigError, match="no bundle wrote it"):
        write_bundle(seen, tmp_path / "sent")


def test_an_earlier_bundle_is_renewed_and_pages_of_agents_that_are_gone_go(seen: World, tmp_path: Path) -> None:
    folder = tmp_path / "sent"
    (tmp_path / "sent").mkdir()
    first = write_bundle(seen, folder)
    gone = folder / "agent-ryan.html"
    gone.write_text(first[1].read_text("utf-8"), "utf-8")
    assert write_bundle(seen, folder) == first
    assert not gone.exists() and sorted(folder.iterdir()) == sorted(first)


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("ann", "agent-ann.html"),
        ("index", "agent-index.html"),
        ("a-b-2", "agent-a-b-2.html"),
        ("../../etc/passwd", r"agent-etc-passwd-[0-9a-f]{10}\.html"),
        ("Ann", r"agent-ann-[0-9a-f]{10}\.html"),
        ("日本", r"agent--[0-9a-f]{10}\.html"),
        ("x" * 500, r"agent-x{60}-[0-9a-f]{10}\.html"),
    ],
)
def test_a_page_has_a_name_that_every_file_system_keeps(agent: str, name: str) -> None:
    assert re.fullmatch(name, page_names([agent])[agent])
    assert len({*page_names([agent, agent.upper(), agent + "-"]).values()}) == len({agent, agent.upper(), agent + "-"})


def test_the_command_writes_them_and_ends(evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONA_ROOT", str(evaluated))
    get_settings.cache_clear()
    done = CliRunner().invoke(app, ["view", "--bundle", str(tmp_path / "sent")])
    assert done.exit_code == 0, done.output
    assert f"5 pages written: {tmp_path / 'sent' / 'index.html'}" in done.output
    assert "The pages contain messages" in done.output
