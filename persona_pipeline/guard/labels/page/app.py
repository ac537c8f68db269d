"""The application behind the labelling page: what is to be labelled now, four things one can do, and who may do them."""

import hmac
import json
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.labels.files import MOST_NOTE, Label
from persona_pipeline.guard.labels.session import BANDS, TARGET, Answered, Judgment, Labelling
from persona_pipeline.guard.labels.voice import VoiceLabel
from persona_pipeline.guard.labels.voice_session import Asked, VoiceLabelling
from persona_pipeline.judging.verdict import Verdict

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

API = "/api/"
MOST_BODY = 64 * 1024
_HOSTS = ("127.0.0.1", "localhost")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode("ascii")),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class RequestGuard:
    """ASGI middleware: requests to this machine by name only, and to the API only with the token and from the page itself."""

    def __init__(self, app: "ASGIApp", token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: "Message") -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(scope["path"], headers)
        if refusal is None:
            await self._app(scope, receive, send_guarded)
            return
        status, detail = refusal
        body = json.dumps({"detail": detail}).encode("ascii")
        start = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode("ascii"))]
        await send_guarded({"type": "http.response.start", "status": status, "headers": start})
        await send_guarded({"type": "http.response.body", "body": body})

    def _refusal(self, path: str, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        # A name that somebody made lead here is not the page's.
        if host.partition(":")[0].lower() not in _HOSTS:
            return 421, "this page answers requests to 127.0.0.1 and localhost only"
        if headers.get("origin") not in (None, f"http://{host}"):
            return 403, "another page sent this request"
        if not path.startswith(API):
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode("utf-8"), self._token.encode("utf-8")):
            return 401, "open the address that the command printed: it has the key to this page"
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MOST_BODY or "transfer-encoding" in headers:
            return 413, f"a request has at most {MOST_BODY:,} bytes"
        return None


_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


class AnswerRequest(BaseModel, extra="forbid", strict=True):
    """An answer to what is shown."""

    key: str
    answer: int | Literal["not_applicable", "on", "off"]
    note: str = Field("", max_length=MOST_NOTE)


class SkipRequest(BaseModel, extra="forbid", strict=True):
    """What is put aside."""

    key: str


def create_app(session: Labelling | VoiceLabelling, token: str) -> FastAPI:
    """Return the application. ``token``: whoever sends it as a bearer token may label."""
    app = FastAPI(title="persona-pipeline labels", docs_url=None, redoc_url=None, openapi_url=None)
    for path, name in (("/", "label.html"), ("/label.css", "label.css"), ("/label.js", "label.js")):
        app.add_api_route(path, _static(name), methods=["GET"])

    @app.get(f"{API}state")
    def state() -> Response:
        return _state(session)

    @app.post(f"{API}answer")
    def answer(request: AnswerRequest) -> Response:
        said = request.answer
        if isinstance(session, VoiceLabelling):
            if said not in ("on", "off"):
                raise ValueError("an answer about a voice is on or off")
            session.answer(request.key, said == "on", request.note)
        elif said in ("on", "off"):
            raise ValueError("an answer about a claim is 0 to 9 or not_applicable")
        else:
            session.answer(request.key, said if isinstance(said, int) else None, request.note)
        return _state(session)

    @app.post(f"{API}skip")
    def skip(request: SkipRequest) -> Response:
        session.skip(request.key)
        return _state(session)

    @app.post(f"{API}undo")
    def undo() -> Response:
        return _state(session, session.undo())

    for error, status, detail in (
        (RequestValidationError, 422, "the page sent what it should not; reload it"),
        (KeyError, 404, "there is no such judgment any more; reload the page"),
        (ConfigError, 409, None),
        (ValueError, 422, None),
        (OSError, 507, None),
    ):
        app.add_exception_handler(error, _refused(status, detail))
    app.add_middleware(RequestGuard, token=token)
    return app


_ON_OR_OFF = (
    {"value": "on", "key": "1", "words": "sounds like it"},
    {"value": "off", "key": "0", "words": "does not"},
)


def _voice_state(session: VoiceLabelling, note: str) -> Response:
    current, last, progress = session.current(), session.last, session.progress()
    labelled = progress["on"] + progress["off"]
    data = {
        "labeller": session.labeller,
        "kind": "person",
        "answers": _ON_OR_OFF,
        "how": f"Only how it sounds counts, not whether it is right. The check {progress['check']}.",
        "target": progress["needed"],
        "progress": [{"dimension": "labels", "done": labelled, "judged": progress["needed"]}],
        "item": _asked(session, current, note) if current else None,
        "last": _voice_last(last) if last else None,
    }
    return _json(data)


def _asked(session: VoiceLabelling, asked: Asked, note: str) -> dict[str, Any]:
    shown = [*asked.before, asked.message]
    return {
        "key": asked.message.id,
        "dimension": "voice",
        "claim": f"Does the last message sound like {session.persona.display_name}?",
        "persona": session.persona.persona,
        "transcript": [{"id": item.id, "speaker": item.agent_id, "text": item.text} for item in shown],
        "note": note,
    }


def _voice_last(done: Answered[Asked, VoiceLabel]) -> dict[str, Any]:
    answer = None if done.label is None else "on" if done.label.on else "off"
    return {"claim": done.item.message.text, "answer": answer, "judges": []}


def _state(session: Labelling | VoiceLabelling, undone: Answered[Any, Any] | None = None) -> Response:
    # What was noted is not to be written again.
    note = undone.label.note if undone and undone.label else ""
    if isinstance(session, VoiceLabelling):
        return _voice_state(session, note)
    current, last = session.current(), session.last
    data = {
        "labeller": session.labeller.name,
        "kind": session.labeller.kind,
        "bands": [vars(band) for band in BANDS],
        "target": TARGET,
        "progress": [vars(item) for item in session.progress()],
        "item": {**_item(current), "note": note} if current else None,
        "last": _last(last) if last else None,
    }
    return _json(data)


def _item(judgment: Judgment) -> dict[str, Any]:
    """What the judge was shown, and not what it said."""
    request = judgment.request
    return {
        "key": judgment.key,
        "dimension": judgment.dimension,
        "claim": request.claim,
        "persona": request.persona,
        "transcript": request.trajectory.content(),
    }


def _last(answered: Answered[Judgment, Label]) -> dict[str, Any]:
    label = answered.label
    return {
        "claim": answered.item.request.claim,
        "answer": None if label is None else _said(label.score),
        # Only what was answered shows what the judge said of it.
        "judges": [] if label is None else [_judge(*judge) for judge in answered.item.by_judge.items()],
    }


def _judge(version: tuple[str | None, str | None], verdicts: Sequence[Verdict]) -> dict[str, Any]:
    return {
        "model": version[0] or "the judge",
        "said": [_said(verdict.score) for verdict in verdicts],
        "reasoning": verdicts[0].reasoning,
    }


def _said(score: int | None) -> str:
    return "n/a" if score is None else str(score)


def _static(name: str) -> Callable[[], Response]:
    text = files("persona_pipeline.guard.labels.page").joinpath("static", name).read_text(encoding="utf-8")
    if name.endswith(".css"):
        # All pages share a look.
        text = files("persona_pipeline.base").joinpath("theme.css").read_text(encoding="utf-8") + text

    def serve() -> Response:
        return Response(text, media_type=_TYPES[name.rpartition(".")[2]])

    return serve


def _refused(status: int, detail: str | None) -> Callable[[Request, Exception], Response]:
    """What the page says of an error: ``detail``, by default the error's own words."""
    return lambda _, error: _json({"detail": detail or str(error)}, status)


def _json(data: Any, status: int = 200) -> Response:
    # In ASCII: what people and agents say may hold lone surrogates, which UTF-8 cannot.
    return Response(json.dumps(data), status_code=status, media_type="application/json")
