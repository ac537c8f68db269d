"""The documentation as a site: docs/ and what is generated from the code, built by zensical with every link checked.

    python docs/site/build.py [--output .persona/site]

Links out of docs/ lead on GitHub to files of the repository; here those files are copied beside the pages. Nothing is fetched.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))

from docs.site.generated import generated_pages, written_places  # noqa: E402

FOLDER = PROJECT / "docs" / "site"
DOCS = PROJECT / "docs"
# Files beside docs/ that are pages themselves, by the name they have on the site.
BESIDE = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md"}
_LINK = re.compile(r"(\[[^\]]*\]\()([^)\s]+)(\))")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def prepare(pages: Path) -> None:
    """Write every page of the site into a folder, links leading to what is there."""
    for path, text in written_places().items():
        path.write_text(text, encoding="utf-8")
    for source in sorted(DOCS.rglob("*.md")):
        place = source.relative_to(DOCS)
        _write(pages, source, Path("index.md") if place == Path("README.md") else place)
    for name, page in BESIDE.items():
        _write(pages, PROJECT / name, Path(page))
    for name, text in generated_pages().items():
        (pages / name).write_text(text, encoding="utf-8")
    for name in ("style.css", "iframe-worker.js"):
        shutil.copy(FOLDER / name, pages)


def _write(pages: Path, source: Path, place: Path) -> None:
    target = pages / place
    target.parent.mkdir(parents=True, exist_ok=True)
    text, done, parts = source.read_text(encoding="utf-8"), 0, []
    for code in _CODE.finditer(text):
        parts += [_linked(text[done : code.start()], pages, source, place), code[0]]
        done = code.end()
    target.write_text("".join([*parts, _linked(text[done:], pages, source, place)]), encoding="utf-8")


def _linked(text: str, pages: Path, source: Path, place: Path) -> str:
    def lead(match: re.Match[str]) -> str:
        path, _, anchor = match[2].partition("#")
        if re.match(r"[a-z]+:", match[2]) or not path:
            return match[0]
        return f"{match[1]}{_target(path, pages, source, place)}{'#' * bool(anchor)}{anchor}{match[3]}"

    return _LINK.sub(lead, text)


def _target(path: str, pages: Path, source: Path, place: Path) -> str:
    """Return where a link of a page leads on the site; a file that is no page is copied there."""
    linked = (source.parent / path).resolve()
    up = "../" * len(place.parent.parts)
    if linked.is_relative_to(DOCS) and linked.suffix == ".md":
        found = linked.relative_to(DOCS)
        return up + ("index.md" if found == Path("README.md") else found.as_posix())
    name = linked.relative_to(PROJECT).as_posix()
    if name in BESIDE:
        return up + BESIDE[name]
    if linked.is_dir():
        raise SystemExit(f"{source.relative_to(PROJECT)}: {path} is a folder outside docs/; link a file of it")
    # Sources under another name, so that they are shown and not run; folders that begin with a dot are left out by the builder.
    name = name.removeprefix(".")
    copy = f"files/{name}" if linked.suffix in (".png", ".svg") else f"files/{name}.txt"
    (pages / copy).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(linked, pages / copy)
    return up + copy


class _Page(HTMLParser):
    """The links, loaded things and anchors of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", "alternate", "next", "prev") and "href" in values:
            self.loads.append(values["href"])
        elif "src" in values:
            self.loads.append(values["src"])


def check(site: Path) -> list[str]:
    """Return what is wrong with a built site: links and anchors that lead nowhere, and whatever is loaded from elsewhere."""
    pages: dict[Path, _Page] = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = page = _Page()
        page.feed(path.read_text(encoding="utf-8"))
    wrong = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        name = path.relative_to(site)
        wrong += [f"{name}: loads {url}" for url in page.loads if re.match(r"(?:[a-z]+:)?//", url)]
        for url in [*page.links, *page.loads]:
            if re.match(r"[a-z]+:|//", url):
                continue
            target, anchor = urldefrag(url.split("?")[0])
            found = (path.parent / unquote(target)).resolve() if target else path
            if found.is_dir():
                found /= "index.html"
            if not found.is_file():
                wrong.append(f"{name}: {url} leads nowhere")
            elif anchor and found in pages and unquote(anchor) not in pages[found].anchors:
                wrong.append(f"{name}: {url} has no such anchor")
    return wrong


def build(output: Path) -> None:
    """Build the site, or exit with what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "pages").mkdir()
        prepare(work / "pages")
        shutil.copy(FOLDER / "zensical.toml", work)
        program = shutil.which("zensical", path=str(Path(sys.executable).parent))
        if program is None:
            raise SystemExit("zensical is not installed; run: pip install 'persona-pipeline[docs]'")
        done = subprocess.run([program, "build", "--strict"], cwd=work, capture_output=True, text=True, check=False)
        if done.returncode:
            # It colours what it says whoever reads it.
            raise SystemExit(re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr))
        if wrong := check(work / "site"):
            raise SystemExit("\n".join(wrong))
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(work / "site", output)
    print(f"{len(list(output.rglob('*.html')))} pages in {output}; open {output / 'index.html'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=PROJECT / ".persona" / "site")
    build(parser.parse_args().output)
