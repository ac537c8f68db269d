"""What a change touches, by name, as Markdown: the first thing to be seen of a pull request."""

from collections.abc import Iterator, Sequence

from persona_pipeline.reporting.text import markdown_code
from persona_pipeline.world.changes import Change, Kind, change_counts

TITLE = "### What this change touches"
_ORDER = ("persona", "baseline", "claim", "claims", "recording", "messages", "suite")
_PLURALS = {
    "persona": "personas",
    "baseline": "baselines",
    "claim": "claims",
    "recording": "recordings",
    "suite": "suites",
}
_KINDS = (Kind.REMOVED, Kind.EDITED, Kind.ADDED)
_NAME_LIMIT = 120


def render_changes(changes: Sequence[Change], limit: int = 20_000) -> str:
    """Return Markdown that names all that was removed, edited and added; beyond ``limit`` characters the rest is counted."""
    if not changes:
        return f"{TITLE}\n\nNo persona, claim, baseline, recording, message file or suite.\n"
    lines = [TITLE, "", _summary(changes), ""]
    room = limit - sum(map(len, lines))
    for shown, line in enumerate(_lines(changes)):
        if len(line) + 1 > room:
            lines.append(f"- and {len(changes) - shown} more")
            break
        lines.append(line)
        room -= len(line) + 1
    return "\n".join(lines) + "\n"


def _summary(changes: Sequence[Change]) -> str:
    counts = change_counts(changes)
    parts = []
    for what in sorted({what for what, _ in counts}, key=_rank):
        told = ", ".join(f"{counts[what, kind]} {kind.value}" for kind in _KINDS if (what, kind) in counts)
        parts.append(f"{_PLURALS.get(what, what)}: {told}")
    return "; ".join(parts) + "."


def _lines(changes: Sequence[Change]) -> Iterator[str]:
    # What is gone comes first: nothing else reminds of it.
    for change in sorted(changes, key=lambda item: (_KINDS.index(item.kind), _rank(item.what), item.name)):
        yield f"- {change.kind.value} {change.what} {markdown_code(change.name, _NAME_LIMIT)}"


def _rank(what: str) -> tuple[int, str]:
    return (_ORDER.index(what) if what in _ORDER else len(_ORDER), what)
