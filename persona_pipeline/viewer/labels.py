"""The labelling part of the page: what is to be labelled now, and four things one can do."""

import json
import threading
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.labels.files import MOST_NOTE
from persona_pipeline.guard.labels.session import BANDS, TARGET, Answered, Labelling, VoiceLabelling

API = "/api/"
Session = Labelling | VoiceLabelling
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


class SkipRequest(BaseModel, extra="forbid", strict=True):
    """What is put aside."""

    key: str


class AnswerRequest(SkipRequest):
    """An answer to what is shown."""

    answer: int | Literal["not_applicable", "on", "off"]
    note: str = Field("", max_length=MOST_NOTE)


# Opens what is to be labelled of an agent and of a dimension ("": of all).
OpenSession = Callable[[str, str], Session]


def _chosen(request: Request, agent: str = "", dimension: str = "") -> Session:
    # Two who ask at the same time get the same session.
    with request.app.state.opening:
        return request.app.state.open_session(agent, dimension)


_Chosen = Annotated[Session, Depends(_chosen)]


def label_app(open_session: OpenSession) -> FastAPI:
    """Return the application of the labelling page; each session is opened when somebody asks for it, and once."""
    app = FastAPI(title="persona-pipeline labels", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.opening, app.state.open_session = threading.Lock(), cache(open_session)
    # All pages share a look.
    theme = files("persona_pipeline.base").joinpath("theme.css").read_text(encoding="utf-8")
    for path, name, before in (
        ("/", "label.html", ""),
        ("/label.css", "label.css", theme),
        ("/label.js", "label.js", ""),
    ):
        app.add_api_route(path, serving(name, before), methods=["GET"])

    @app.get(f"{API}state")
    def state(session: _Chosen) -> Response:
        return _state(session)

    @app.post(f"{API}answer")
    def answer(request: AnswerRequest, session: _Chosen) -> Response:
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
    def skip(request: SkipRequest, session: _Chosen) -> Response:
        session.skip(request.key)
        return _state(session)

    @app.post(f"{API}undo")
    def undo(session: _Chosen) -> Response:
        return _state(session, session.undo())

    for error, status, detail in (
        (RequestValidationError, 422, "the page sent what it should not; reload it"),
        (KeyError, 404, "there is no such judgment any more; reload the page"),
        (ConfigError, 409, None),
        (ValueError, 422, None),
        (OSError, 507, None),
    ):
        app.add_exception_handler(error, _refused(status, detail))
    return app


_ON_OR_OFF = (
    {"value": "on", "key": "1", "words": "sounds like it"},
    {"value": "off", "key": "0", "words": "does not"},
)


def _voice_state(session: VoiceLabelling) -> dict[str, Any]:
    current, last, progress = session.current(), session.last, session.progress()
    shown = [*current.before, current.message] if current else []
    return {
        "labeller": session.labeller,
        "kind": "person",
        "answers": _ON_OR_OFF,
        "how": f"Only how it sounds counts, not whether it is right. The check {progress['check']}.",
        "target": progress["needed"],
        "progress": [{"dimension": "labels", "done": progress["on"] + progress["off"], "judged": progress["needed"]}],
        "item": current
        and {
            "key": current.key,
            "dimension": "voice",
            "claim": f"Does the last message sound like {session.persona.display_name}?",
            "persona": session.persona.persona,
            "transcript": [{"id": item.id, "speaker": item.agent_id, "text": item.text} for item in shown],
        },
        "last": last
        and {
            "claim": last.item.message.text,
            "answer": None if last.label is None else "on" if last.label.on else "off",
            "judges": [],
        },
    }


def _claim_state(session: Labelling) -> dict[str, Any]:
    current, last = session.current(), session.last
    request, label = current and current.request, last and last.label
    # Only what was answered shows what the judge said of it.
    judges = last.item.by_judge if last and label else {}
    return {
        "labeller": session.labeller.name,
        "kind": session.labeller.kind,
        "bands": [vars(band) for band in BANDS],
        "target": TARGET,
        "progress": [vars(item) for item in session.progress()],
        # What the judge was shown, and not what it said.
        "item": request
        and {
            "key": request.key,
            "dimension": request.dimension,
            "claim": request.claim,
            "persona": request.persona,
            "transcript": request.trajectory.content(),
        },
        "last": last
        and {
            "claim": last.item.request.claim,
            "answer": label and _said(label.score),
            "judges": [
                {
                    "model": model or "the judge",
                    "said": [_said(verdict.score) for verdict in verdicts],
                    "reasoning": verdicts[0].reasoning,
                }
                for (model, _), verdicts in judges.items()
            ],
        },
    }


def _state(session: Session, undone: Answered[Any, Any] | None = None) -> Response:
    told = _voice_state(session) if isinstance(session, VoiceLabelling) else _claim_state(session)
    if told["item"]:
        # What was noted is not to be written again.
        told["item"]["note"] = undone.label.note if undone and undone.label else ""
    return _json(told)


def _said(score: int | None) -> str:
    return "n/a" if score is None else str(score)


def serving(name: str, before: str = "") -> Callable[[], Response]:
    """Return what answers with a file of the page, after another text."""
    text = before + files("persona_pipeline.viewer").joinpath("static", name).read_text(encoding="utf-8")
    kind = _TYPES[name.rpartition(".")[2]]
    return lambda: Response(text, media_type=kind)


def _refused(status: int, detail: str | None) -> Callable[[Request, Exception], Response]:
    """What the page says of an error: ``detail``, by default the error's own words."""
    return lambda _, error: _json({"detail": detail or str(error)}, status)


def _json(data: Any, status: int = 200) -> Response:
    # In ASCII: what people and agents say may hold lone surrogates, which UTF-8 cannot.
    return Response(json.dumps(data), status_code=status, media_type="application/json")
