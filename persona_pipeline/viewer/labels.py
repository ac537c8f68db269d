"""Labels given on the page: what is to be labelled now and four things one can do, and thumbs where messages are read."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.files import look_of
from persona_pipeline.guard.labels.files import MOST_NOTE, write_label_files
from persona_pipeline.guard.labels.session import BANDS, TARGET, Answered, Labelling
from persona_pipeline.guard.labels.voice import MarkSource, VoiceLabel, load_voice_labels, voice_label
from persona_pipeline.world.models import Message, grouped

API = "/api/"
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


class SkipRequest(BaseModel, extra="forbid", strict=True):
    """What is put aside."""

    key: str


class AnswerRequest(SkipRequest):
    """An answer to what is shown."""

    answer: int | Literal["not_applicable"]
    note: str = Field("", max_length=MOST_NOTE)


# Opens what is to be labelled of an agent and of a dimension ("": of all).
OpenSession = Callable[[str, str], Labelling]


def _chosen(request: Request, agent: str = "", dimension: str = "") -> Labelling:
    # Two who ask at the same time get the same session.
    with request.app.state.opening:
        return request.app.state.open_session(agent, dimension)


_Chosen = Annotated[Labelling, Depends(_chosen)]


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


def _state(session: Labelling, undone: Answered | None = None) -> Response:
    told = _claim_state(session)
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


# Of whom swipes and regenerations are labels: of texts that were not sent.
_OF_OTHER_TEXTS = (MarkSource.SWIPE, MarkSource.REGENERATION)


class ChangedMeanwhileError(ValueError):
    """The label is another one than was shown: it was given or taken back elsewhere in between."""

    def __init__(self, now: VoiceLabel | None) -> None:
        said = "no label" if now is None else "a thumb up" if now.on else "a thumb down"
        super().__init__(f"Meanwhile this message has {said} of yours, given in another tab or by another command.")


@dataclass
class Thumbs:
    """One person's thumbs, in the files of voice labels: what is in the files counts, whoever wrote it."""

    folder: Path
    labeller: str
    # What stood there before and after each thumb; None: nothing.
    _done: list[tuple[VoiceLabel | None, VoiceLabel | None]] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _read: tuple[object, Mapping[str, list[VoiceLabel]]] = (None, {})

    def labels(self) -> Mapping[str, list[VoiceLabel]]:
        """Return the labels of texts that were sent, by message; ConfigError: the label file is not valid."""
        looks = [look_of(path.stat()) for path in VoiceLabel.paths(self.folder)]
        with self._lock:
            if self._read[0] != looks:
                sent = [label for label in load_voice_labels(self.folder) if label.source not in _OF_OTHER_TEXTS]
                self._read = looks, grouped(sent, lambda label: label.message)
            return self._read[1]

    def own(self, message_id: str, agent_id: str) -> VoiceLabel | None:
        """Return the newest label that this person gave a message of an agent, whatever the message said then."""
        labels, wanted = self.labels().get(message_id, ()), (self.labeller, agent_id)
        mine = [label for label in labels if (label.labeller, label.agent_id) == wanted]
        return max(mine, key=lambda label: label.labelled_at, default=None)

    def give(self, message: Message, thumb: str, *, seen: str | None = None) -> None:
        """Write a label (``up``, ``down``), or take it away (""). ``seen``: the ``stamp`` of the one that was shown, if it matters.

        Raises ChangedMeanwhileError where another stands there; ValueError: the message cannot be labelled, or a ConfigError.
        """
        with self._lock:
            before = self.own(message.id, message.agent_id)
            if (before is None) if not thumb else (before is not None and before.on == (thumb == "up")):
                return
            if seen is not None and stamp(before) != seen:
                raise ChangedMeanwhileError(before)
            after = voice_label(message, thumb == "up", self.labeller, MarkSource.PERSON) if thumb else None
            self._write(after, remove=before)
            self._done.append((before, after))

    def undo(self) -> str | None:
        """Take back what was done last since the page was started, and return the message's id; None: there is nothing.

        Raises ChangedMeanwhileError where the label was changed elsewhere since; it is left, and no longer undone.
        """
        with self._lock:
            before, after = self._done[-1] if self._done else (None, None)
            known = after or before
            if known is None:
                return None
            now = self.own(known.message, known.agent_id)
            if stamp(now) != stamp(after):
                self._done.pop()
                raise ChangedMeanwhileError(now)
            self._write(before, remove=after)
            self._done.pop()
            return known.message

    @property
    def can_undo(self) -> bool:
        """Whether anything was done since the page was started."""
        return bool(self._done)

    def _write(self, label: VoiceLabel | None, *, remove: VoiceLabel | None) -> None:
        write_label_files(VoiceLabel, self.folder, [label] if label else [], remove=[remove.identity] if remove else [])


def stamp(label: VoiceLabel | None) -> str:
    """Return by what a label is told from another of the same person and message."""
    return "" if label is None else f"{'up' if label.on else 'down'} {label.labelled_at}"
