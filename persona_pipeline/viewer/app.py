"""The application of ``view``: an address for each page, and forms for thumbs."""

import errno
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.reporting.html import page_style
from persona_pipeline.reporting.text import asset
from persona_pipeline.scoring.facts.known import known_facts, load_canon, mark_canon
from persona_pipeline.suites.grading.results import reason_of
from persona_pipeline.viewer import messages as listing
from persona_pipeline.viewer import runs
from persona_pipeline.viewer.boundary import RequestGuard
from persona_pipeline.viewer.bundle import write_bundle as write_bundle
from persona_pipeline.viewer.messages import LONG, MessageFilter
from persona_pipeline.viewer.pages import Viewer, address, csv_parts
from persona_pipeline.viewer.thumbs import THUMBS, ChangedMeanwhileError
from persona_pipeline.world.models import Message
from persona_pipeline.world.world import World

# Messages before and after the one that is read, and at most.
_AROUND, _MOST_AROUND = 8, 200


def create_app(world: World, labeller: str, token: str) -> FastAPI:
    """Return the application.

    Args:
        labeller: the person who gives thumbs; "": thumbs are off.
        token: the key to see and label everything.
    """
    app = FastAPI(title="persona-pipeline view", docs_url=None, redoc_url=None, openapi_url=None)
    viewer = Viewer(world, labeller)
    _add_agents(app, viewer)
    _add_messages(app, viewer)
    _add_suites(app, viewer)
    _add_thumbs(app, viewer)
    _add_file(app, "view.css", "text/css", page_style())
    _add_file(app, "view.js", "text/javascript")
    statuses = {ConfigError: 409, HTTPException: None, RequestValidationError: 422, DBAPIError: 503, OSError: None}
    for error, status in statuses.items():
        app.add_exception_handler(error, _failed(viewer, status))
    app.add_middleware(RequestGuard, token=token)
    return app


def _add_file(app: FastAPI, name: str, kind: str, before: str = "") -> None:
    """Serve a static file, after another text."""
    text = before + asset(name, "persona_pipeline.viewer")
    app.add_api_route(f"/{name}", lambda: Response(text, media_type=kind), methods=["GET"])


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
        return viewer.page("agents_list.html.j2", found=found, rows=rows, silent=silent, q=q, verdict=verdict)

    @app.get("/agent")
    def agent(id: str, run: str = "") -> Response:
        page = runs.agent_page(world, id, run)
        if page is None:
            if run or (id not in world.agent_ids() and id not in world.display_names()):
                raise HTTPException(404, "There is no such agent, or no such run of it any more.")
            return viewer.page("silent.html.j2", agent_id=id, name=world.display_names().get(id, id))
        drawn = page["block"].timeline
        figure = drawn and replace(drawn, title="Scores by window", href="")
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
        # Invalid parameters of the address must be reported before the response starts.
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
    """Return the new state of a thumb for the page, or a redirect back for a browser without scripts."""
    is_part = "x-fragment" in request.headers
    if not conflict and not is_part:
        return Response(status_code=303, headers={"location": _back(request, message.id)})
    (shown,) = viewer.shown([message])
    values = {"item": shown, "conflict": conflict, "names": viewer.world.display_names()}
    return viewer.page("thumbs.html.j2" if is_part else "changed.html.j2", 409 if conflict else 200, **values)


def _back(request: Request, message_id: str) -> str:
    """Return the page that sent the form, if it is one of our pages; else the message's page."""
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
        is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        code = 507 if is_full else status or getattr(error, "status_code", 500)
        return viewer.page("error.html.j2", code, detail=detail)

    return respond
