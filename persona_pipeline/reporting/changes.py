"""What a change touches, by name, as Markdown: what a pull request's verdict was made of."""

from collections.abc import Sequence

from persona_pipeline.reporting.text import markdown_code, markdown_text
from persona_pipeline.world.changes import Change, Kind

TITLE = "### What this change touches"
NOTHING = "No persona, claim, message, recording or suite, and nothing that decides."
# What decides and what should not be there at all comes first, then what is evaluated.
_ORDER = (
    "store", "link", "workflow", "settings", "baseline", "labels", "judge changes", "lexicon", "nudges",
    "persona", "claim", "claims", "recordings", "messages", "card", "suite",
)  # fmt: skip
_PLURALS = {
    "store": "stored runs, which no commit should bring",
    "link": "links in the place of files",
    "workflow": "workflows",
    "baseline": "baselines",
    "persona": "personas",
    "claim": "claims",
    "claims": "settings of claims",
    "card": "cards",
    "suite": "suites",
}
# What is gone comes first: nothing else reminds of it.
_KINDS = (Kind.REMOVED, Kind.EDITED, Kind.ADDED)
_NAME_LIMIT, _DETAIL_LIMIT, _SHORT_LIMIT = 120, 2_000, 240
_MOST_NAMED = 3


def render_changes(changes: Sequence[Change], limit: int = 20_000) -> str:
    """Return Markdown that names all that was removed, edited and added; beyond ``limit`` characters the rest is counted."""
    lines = [TITLE, "", changes_line(changes), ""]
    room = limit - sum(map(len, lines))
    for shown, change in enumerate(sorted(changes, key=_rank)):
        counted = f": {_counted(change.rows)}" if any(change.rows) else ""
        line = f"- {change.kind.value} {change.what} {_named(change)}{counted}"
        if len(line) + 1 > room:
            lines.append(f"- and {len(changes) - shown} more")
            break
        lines.append(line)
        room -= len(line) + 1
    return "\n".join(lines).rstrip() + "\n"


def changes_line(changes: Sequence[Change]) -> str:
    """Return all of that in one line: each sort of thing with how many were removed, edited and added, and the first of them."""
    parts = []
    for what in dict.fromkeys(change.what for change in sorted(changes, key=_rank)):
        own = sorted((change for change in changes if change.what == what), key=_rank)
        rows = [change.rows for change in own if any(change.rows)]
        counts = [sum(column) for column in zip(*rows, strict=True)]
        counted = _counted(counts or [sum(change.kind is kind for change in own) for kind in _KINDS])
        more = f" and {len(own) - _MOST_NAMED} more" if len(own) > _MOST_NAMED else ""
        names = ", ".join(_named(change, _SHORT_LIMIT) for change in own[:_MOST_NAMED])
        parts.append(f"**{_PLURALS.get(what, what)}** {counted}: {names}{more}")
    return f"{'; '.join(parts)}." if parts else NOTHING


def _named(change: Change, limit: int = _DETAIL_LIMIT) -> str:
    text = markdown_code(change.name, _NAME_LIMIT)
    return f"{text} ({markdown_text(change.detail, limit)})" if change.detail else text


def _counted(counts: Sequence[int]) -> str:
    return ", ".join(f"{count:,} {kind.value}" for count, kind in zip(counts, _KINDS, strict=True) if count)


def _rank(change: Change) -> tuple[int, int, str]:
    order = _ORDER.index(change.what) if change.what in _ORDER else len(_ORDER)
    return order, _KINDS.index(change.kind), change.name
