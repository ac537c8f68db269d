"""``view --bundle``: pages that can be sent. They need no server, no script and nothing from elsewhere."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from markupsafe import Markup

from persona_pipeline.base.documents.json import content_hash, write_atomically
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.reporting.html import page_policy, page_style
from persona_pipeline.reporting.text import asset
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.viewer import messages as listing
from persona_pipeline.viewer import runs
from persona_pipeline.viewer.messages import LONG, MessageFilter
from persona_pipeline.viewer.pages import Viewer
from persona_pipeline.world.world import World

START = "index.html"
# Messages that an agent's page shows.
MOST = 100
# By this a page is known as one of a bundle.
_MARK = Markup('<meta name="generator" content="persona-pipeline view --bundle">')


def write_bundle(world: World, folder: Path) -> list[Path]:
    """Write a start page and a page for each agent with its worst messages, and take away pages of an earlier bundle.

    Returns:
        The files that were written, the start page first.

    Raises:
        ConfigError: the folder is none, or has something that no bundle wrote. Nothing was written.
    """
    earlier = _earlier_pages(folder)
    pages = bundle_pages(world)
    for name, text in pages.items():
        write_atomically(folder / name, text)
    for path in earlier:
        if path.name not in pages:
            path.unlink()
    return [folder / name for name in pages]


def _earlier_pages(folder: Path) -> list[Path]:
    """Return the pages of an earlier bundle; ConfigError: there is something else."""
    if not folder.exists():
        return []
    found = sorted(folder.iterdir()) if folder.is_dir() else [folder]
    for path in found:
        if path.is_symlink() or not path.is_file() or _MARK.encode() not in path.read_bytes()[:1000]:
            said = "no bundle wrote it; give --bundle a folder that is empty, new, or of an earlier bundle"
            raise ConfigError(Problem(said, str(path)))
    return found


def bundle_pages(world: World) -> dict[str, str]:
    """Return the pages by name of their files, the start page first."""
    viewer, found = Viewer(world, ""), runs.everybody(world)
    rows = {row.agent_id: row for row in found["rows"]}
    names = page_names([*rows, *found["silent"]])
    style = page_style() + asset("view.css", "persona_pipeline.viewer")
    bundled = {"mark": _MARK, "style": Markup(style), "policy": page_policy(style), "day": datetime.now(UTC).date()}

    def url(path: str, **query: str) -> str:
        return names.get(query.get("agent") or query.get("id", ""), START)

    start = {"found": found, "rows": found["rows"], "silent": found["silent"]}
    pages, known = {START: viewer.text("agents_list.html.j2", bundled=bundled, url=url, **start)}, world.display_names()
    for agent_id, name in names.items():
        worst = listing.list_messages(world.store, MessageFilter(agent=agent_id), {}, at_once=MOST + 1, most=LONG)
        bad = [item for item in viewer.shown(worst.messages, LONG) if item.verdict and item.verdict.verdict != Role.IN]
        said = {
            "row": rows.get(agent_id),
            "name": known.get(agent_id, agent_id),
            "names": known,
            "shown": listing.with_before(world.store, bad[:MOST]),
            "more": len(bad) > MOST,
            "is_judged": listing.has_verdicts(world.store, agent_id),
        }
        pages[name] = viewer.text("bundled_agent.html.j2", bundled=bundled, url=url, **said)
    return pages


def page_names(agent_ids: Iterable[str]) -> Mapping[str, str]:
    """Return the file of each agent's page. Names that a file system may change or mix up get a digest."""
    found = {}
    for agent_id in agent_ids:
        plain = re.sub(r"[^a-z0-9]+", "-", agent_id.lower()).strip("-")[:60]
        found[agent_id] = f"agent-{plain if plain == agent_id else f'{plain}-{content_hash(agent_id)[:10]}'}.html"
    return found
