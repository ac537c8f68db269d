"""Parts of pages: templates with their data, addresses, marked text, and messages as a table."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from fastapi import Response
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException

from persona_pipeline.base.documents.json import csv_text, rfc3339
from persona_pipeline.base.status import BROKEN, VERDICTS
from persona_pipeline.guard.labels.files import LABELS
from persona_pipeline.reporting.charts import small_line
from persona_pipeline.reporting.html import templates_beside
from persona_pipeline.reporting.pages.evaluation import score_of
from persona_pipeline.reporting.text import html_text
from persona_pipeline.viewer import messages as listing
from persona_pipeline.viewer.messages import SHORT, MessageFilter, Shown
from persona_pipeline.viewer.thumbs import THUMBS, Thumbs, stamp
from persona_pipeline.world.models import Message
from persona_pipeline.world.runs import verdict_rows_on
from persona_pipeline.world.world import World

_MOST_QUOTES = 200
_ROWS_AT_ONCE = 1000
# Columns of the table of messages, with their values; names are those of ``report --by message``.
_COLUMNS: Mapping[str, Callable[[Shown], Any]] = {
    "agent": lambda item: item.message.agent_id,
    "message_id": lambda item: item.message.id,
    "conversation": lambda item: item.message.conversation,
    "said_at": lambda item: rfc3339(item.message.created_at),
    "text": lambda item: item.message.text,
    "verdict": lambda item: item.verdict and item.verdict.verdict,
    "claims": lambda item: item.verdict and "; ".join(item.verdict.claims),
    "quote": lambda item: item.verdict and item.verdict.quote,
    "reason": lambda item: item.verdict and item.verdict.reason,
    "people": lambda item: "; ".join(f"{label.labeller}: {label.verdict}" for label in item.labels),
    "before_agent": lambda item: item.before and item.before.message.agent_id,
    "before_text": lambda item: item.before and item.before.message.text,
}


class Viewer:
    """The data of the pages: a world, one person's thumbs, and templates.

    Only files of this package and of reports are templates; everything else is escaped.
    """

    def __init__(self, world: World, labeller: str) -> None:
        self.world, self.labeller = world, labeller
        self.thumbs = Thumbs(world.root / LABELS, labeller)
        self._environment = templates_beside("persona_pipeline.viewer")
        self._said: dict[str, Any] = {
            "viewer": self,
            "bundled": None,
            "url": address,
            "marked": marked,
            "stamp": stamp,
            "thumb_verdicts": THUMBS,
            "score_of": score_of,
            "small_line": small_line,
            "verdict_words": {"out": "out of character", "unclear": "unclear", "in": "in character"},
            "window_text": listing.window_text,
            "states": {status.name: status.word for status in reversed(VERDICTS) if status is not BROKEN},
        }

    def text(self, template: str, **values: Any) -> str:
        """Return a page as text."""
        return html_text(self._environment.get_template(template).render({**self._said, **values}))

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page."""
        return Response(self.text(template, **values), status, media_type="text/html")

    def shown(self, messages: Sequence[Message], most: int | None = SHORT) -> list[Shown]:
        """Return messages with the verdicts of judges and the labels of people, cut after ``most`` characters."""
        labels, verdicts = self.thumbs.labels(), verdict_rows_on(self.world.store, messages)
        own = {
            item.id: [label for label in labels.get(item.id, ()) if label.agent_id == item.agent_id]
            for item in messages
        }
        return [Shown(item, most, verdicts.get(item.id, ()), own[item.id]) for item in messages]

    def message(self, message_id: str) -> Message:
        """Return a message, whole."""
        found = listing.messages_by_id(self.world.store, [message_id]).get(message_id)
        if found is None:
            raise HTTPException(404, "There is no such message any more.")
        return found


def csv_parts(viewer: Viewer, wanted: MessageFilter) -> Iterator[str]:
    """Yield a table of the messages that are wanted, in the order of the list; no cell is a formula to a spreadsheet."""
    store, labels, heads = viewer.world.store, viewer.thumbs.labels(), [[*_COLUMNS]]
    while True:
        page = listing.list_messages(store, wanted, labels, at_once=_ROWS_AT_ONCE, most=None)
        shown = listing.with_before(store, viewer.shown(page.messages, None))
        yield csv_text([*heads, *([cell(item) for cell in _COLUMNS.values()] for item in shown)])
        if not page.older:
            return
        wanted, heads = wanted.model_copy(update={"older": page.older, "newer": ""}), []


def address(path: str, **query: object) -> str:
    """Return an address of the page; empty parameters are left out."""
    said = {name: str(value) for name, value in query.items() if value not in ("", None, False)}
    return f"{path}?{urlencode(said)}" if said else path


def marked(text: str, quotes: Iterable[str] = (), words: Iterable[str] = ()) -> Markup:
    """Return text, escaped, with the judges' quotes and the search words marked."""
    kinds = [0] * len(text)
    # Letters may grow when their case is folded, and places would no longer fit.
    folded = text.lower() if len(text.lower()) == len(text) else text
    for kind, within, parts in ((1, text, list(quotes)[:_MOST_QUOTES]), (2, folded, [word.lower() for word in words])):
        for part in filter(None, parts):
            at = within.find(part)
            while at >= 0:
                kinds[at : at + len(part)] = [kind] * len(part)
                at = within.find(part, at + len(part))
    pieces, start = [], 0
    for end in range(1, len(text) + 1):
        if end == len(text) or kinds[end] != kinds[start]:
            piece = escape(text[start:end])
            tag = ("", '<mark class="quoted">', "<mark>")[kinds[start]]
            pieces.append(Markup(tag) + piece + Markup("</mark>") if tag else piece)
            start = end
    return Markup("").join(pieces)
