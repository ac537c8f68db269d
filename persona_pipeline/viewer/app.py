"""The application: an address for every state of the page, forms for thumbs, and the labelling page as a part of it."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Annotated, Any
from urllib.parse import parse_qs, urlencode

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from markupsafe import Markup, escape
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from persona_pipeline.base.documents.json import csv_text, rfc3339
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.status import BROKEN, VERDICTS
from persona_pipeline.guard.labels.files import LABELS
from persona_pipeline.reporting.charts.scores import small_line
from persona_pipeline.reporting.html import page_style, templates_beside
from persona_pipeline.reporting.pages.evaluation import score_of
from persona_pipeline.reporting.text import html_text
from persona_pipeline.scoring.facts.known import known_facts, load_canon, mark_canon
from persona_pipeline.suites.grading.results import reason_of
from persona_pipeline.viewer import messages as listing
from persona_pipeline.viewer import runs
from persona_pipeline.viewer.boundary import RequestGuard
from persona_pipeline.viewer.labels import (
    THUMBS,
    ChangedMeanwhileError,
    OpenSession,
    Thumbs,
    label_app,
    serving,
    sessions_of,
    stamp,
)
from persona_pipeline.viewer.messages import LONG, SHORT, MessageFilter, Shown
from persona_pipeline.world.models import Message
from persona_pipeline.world.runs import verdict_rows_on
from persona_pipeline.world.world import World

# Messages before and after the one that is read, and at most.
_AROUND, _MOST_AROUND = 8, 200
_MOST_QUOTES = 200
_ROWS_AT_ONCE = 1000
# A column of the table of messages, and what stands in it; names are those of ``report --by message``.
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
VERDICT_WORDS = {"out": "out of character", "unclear": "unclear", "in": "in character"}


class Viewer:
    """What the pages stand on: a world, one person's thumbs, and templates.

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
            "verdict_words": VERDICT_WORDS,
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
        """Return messages with what judges and people say of them, cut where they are longer than ``most`` characters."""
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


def create_app(world: World, labeller: str, token: str, open_session: OpenSession | None = None) -> FastAPI:
    """Return the application.

    Args:
        labeller: the person who gives thumbs and labels; "": thumbs are off.
        token: lets a browser see and label everything.
        open_session: opens the judgments of the labelling page; by default those of the world.
    """
    app = FastAPI(title="persona-pipeline view", docs_url=None, redoc_url=None, openapi_url=None)
    viewer = Viewer(world, labeller)
    _add_agents(app, viewer)
    _add_messages(app, viewer)
    _add_suites(app, viewer)
    _add_thumbs(app, viewer)
    for name, before in (("view.css", page_style()), ("view.js", "")):
        app.add_api_route(f"/{name}", serving(name, before), methods=["GET"])
    app.mount("/label", label_app(open_session or sessions_of(world, labeller)))
    for error, status in ((ConfigError, 409), (HTTPException, None), (RequestValidationError, 422), (DBAPIError, 503)):
        app.add_exception_handler(error, _failed(viewer, status))
    app.add_middleware(RequestGuard, token=token)
    return app


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
    """Return an address of the page; what is empty is left out."""
    said = {name: str(value) for name, value in query.items() if value not in ("", None, False)}
    return f"{path}?{urlencode(said)}" if said else path


def marked(text: str, quotes: Iterable[str] = (), words: Iterable[str] = ()) -> Markup:
    """Return text, escaped, with what judges quote and what was searched for marked where it stands."""
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


async def _form(request: Request) -> dict[str, str]:
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return {name: values[-1] for name, values in parse_qs(text, True, max_num_fields=20).items()}
    except ValueError as error:
        raise HTTPException(422, "The page sent what it should not; reload it.") from error


_Form = Annotated[dict[str, str], Depends(_form)]


def _add_agents(app: FastAPI, viewer: Viewer) -> None:
    world = viewer.world

    @app.get("/")
    def agents(q: str = "", verdict: str = "") -> Response:
        found = runs.everybody(world)
        named = q.casefold()
        rows = [
            row
            for row in found["rows"]
            if verdict in ("", row.status.name) and named in f"{row.name} {row.agent_id}".casefold()
        ]
        silent = [name for name in found["silent"] if verdict in ("", "nothing") and named in name.casefold()]
        weeks, shares = runs.weekly_shares(world)
        return viewer.page(
            "agents_list.html.j2",
            found=found,
            rows=rows,
            silent=silent,
            q=q,
            verdict=verdict,
            weeks=weeks,
            shares=shares,
        )

    @app.get("/agent")
    def agent(id: str, run: str = "") -> Response:
        page = runs.agent_page(world, id, run)
        if page is None:
            if run or (id not in world.agent_ids() and id not in world.display_names()):
                raise HTTPException(404, "There is no such agent, or no such run of it any more.")
            return viewer.page("silent.html.j2", agent_id=id, name=world.display_names().get(id, id))
        figure = page["block"].timeline
        if figure:
            figure = replace(figure, title="Scores by window", href="")
        return viewer.page("agent.html.j2", page=page, figure=figure)

    @app.get("/facts")
    def facts(agent: str) -> Response:
        with world.store.connect() as connection:
            known = known_facts(connection, agent)
        canon = load_canon(world.root, agent)
        return viewer.page("facts.html.j2", agent=agent, known=known[::-1], canon=canon, names=world.display_names())

    @app.post("/canon")
    def canon(agent: str, form: _Form) -> Response:
        with world.store.connect() as connection:
            known = {fact.id: fact for fact in known_facts(connection, agent)}
        if agent not in world.agent_ids() or form.get("fact") not in known:
            raise HTTPException(409, "There is no such fact any more; go back and reload the page.")
        mark_canon(world.root, agent, known[form["fact"]])
        return Response(status_code=303, headers={"location": address("/facts", agent=agent)})

    @app.get("/compare")
    def compare(agent: str, dimension: str, claim: str, before: str = "", after: str = "") -> Response:
        found = runs.before_and_after(world, agent, dimension, claim, before=before, after=after)
        if found is None:
            raise HTTPException(404, "This agent has no evaluation in the store.")
        names = world.display_names()
        return viewer.page(
            "compare.html.j2",
            found=found,
            agent=agent,
            names=names,
            name=names.get(agent, agent),
            dimension=dimension,
            claim=claim,
        )


def _add_messages(app: FastAPI, viewer: Viewer) -> None:
    world = viewer.world

    @app.get("/messages")
    def messages(wanted: Annotated[MessageFilter, Query()]) -> Response:
        page = listing.list_messages(world.store, wanted, viewer.thumbs.labels())
        shown = listing.with_before(world.store, viewer.shown(page.messages))
        return viewer.page(
            "messages.html.j2",
            wanted=wanted,
            page=page,
            shown=shown,
            names=world.display_names(),
            agents=world.agent_ids(),
            channels=listing.channels(world.store),
            direct=listing.DIRECT,
            claims=listing.claims(world.store, wanted.agent),
            is_judged=listing.has_verdicts(world.store),
            agreement=listing.agreement(world.store, shown),
        )

    @app.get("/messages.csv")
    def table(wanted: Annotated[MessageFilter, Query()]) -> Response:
        parts = csv_parts(viewer, wanted)
        # What cannot be read of the address is said before anything is sent.
        first, headers = next(parts), {"content-disposition": 'attachment; filename="messages.csv"'}
        return StreamingResponse(chain([first], parts), media_type="text/csv", headers=headers)

    @app.get("/message")
    def message(
        id: str, around: Annotated[int, Query(ge=1, le=_MOST_AROUND)] = _AROUND, whole: bool = False
    ) -> Response:
        found = viewer.message(id)
        before, after = listing.conversation_around(world.store, found, around)
        (own,) = viewer.shown([found], None if whole else LONG)
        judging = [line for line in runs.newest_runs(world.store, found.agent_id) if found.created_at in line.window]
        return viewer.page(
            "message.html.j2",
            own=own,
            talk=viewer.shown([*before, found, *after]),
            judging=judging[:3],
            names=world.display_names(),
            agents=world.agent_ids(),
            around=around,
            more=min(4 * around, _MOST_AROUND) if around in (len(before), len(after)) and around < _MOST_AROUND else 0,
        )


def _add_suites(app: FastAPI, viewer: Viewer) -> None:
    @app.get("/suites")
    def suites(suite: str = "") -> Response:
        found = runs.suite_runs(viewer.world.store, suite)
        return viewer.page("suites.html.j2", found=found, suite=suite, passed=runs.passed_text)

    @app.get("/suite")
    def suite(run: str, verdict: str = "", page: int = 1) -> Response:
        found = runs.suite_run_page(viewer.world.store, run, verdict=verdict, page=page)
        if found is None:
            raise HTTPException(404, "There is no such run of a suite.")
        return viewer.page("suite_run.html.j2", found=found, verdict=verdict, reason=reason_of)


def _add_thumbs(app: FastAPI, viewer: Viewer) -> None:
    @app.post("/thumb")
    def thumb(id: str, form: _Form, request: Request) -> Response:
        message = viewer.message(id)
        if not viewer.labeller or message.agent_id not in viewer.world.agent_ids():
            raise HTTPException(422, "Only messages of agents with a persona can be labelled.")
        if form.get("thumb") not in (*THUMBS, ""):
            raise HTTPException(422, "The page sent what it should not; reload it.")
        try:
            viewer.thumbs.give(message, form["thumb"], seen=form.get("seen"))
        except ChangedMeanwhileError as error:
            return _answered(viewer, message, request, str(error))
        except ValueError as error:
            raise HTTPException(422, f"Nothing was kept: {error}") from error
        return _answered(viewer, message, request)

    @app.post("/undo")
    def undo(request: Request) -> Response:
        try:
            taken = viewer.thumbs.undo()
        except ChangedMeanwhileError as error:
            raise HTTPException(409, f"{error} It is left as it is.") from error
        if taken is None:
            raise HTTPException(409, "There is nothing to take back.")
        return Response(status_code=303, headers={"location": _back(request, taken)})


def _answered(viewer: Viewer, message: Message, request: Request, conflict: str = "") -> Response:
    """Return what becomes of a thumb on the page, or the way back to it for a browser without scripts."""
    is_part = "x-fragment" in request.headers
    if not conflict and not is_part:
        return Response(status_code=303, headers={"location": _back(request, message.id)})
    (shown,) = viewer.shown([message])
    values = {"item": shown, "conflict": conflict, "names": viewer.world.display_names()}
    return viewer.page("thumbs.html.j2" if is_part else "changed.html.j2", 409 if conflict else 200, **values)


def _back(request: Request, message_id: str) -> str:
    """Return where the form was sent from, as far as it is a page of ours; else the message."""
    where = request.query_params.get("back", "")
    if re.fullmatch(r"/(messages|message)\?[\w.~%=&+-]*", where, re.ASCII):
        return where
    return address("/message", id=message_id)


def _failed(viewer: Viewer, status: int | None) -> Callable[[Request, Exception], Response]:
    def respond(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            detail = "There is no such page." if error.detail == "Not Found" else str(error.detail)
        elif isinstance(error, RequestValidationError):
            names = ", ".join(str(item["loc"][-1]) for item in error.errors())
            detail = f"The address has a value that cannot be: {names}."
        elif isinstance(error, DBAPIError):
            said = str(error.orig or error).strip().splitlines() or [""]
            detail = f"The store did not answer ({said[0][:200]}). Reload the page in a moment."
        else:
            detail = str(error)
        code = status or getattr(error, "status_code", 500)
        return viewer.page("error.html.j2", code, detail=detail)

    return respond
