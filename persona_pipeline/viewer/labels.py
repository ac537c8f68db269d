"""Labelling in view: thumbs on messages, and the page on which a person labels judgments.

Judgments come at random, so that the labelled ones represent all of them. The page shows what the judge said after the answer only.
"""

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import count, zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field

from persona_pipeline.base.errors import ConfigError, NothingError
from persona_pipeline.base.files import look_of
from persona_pipeline.evaluation.calibrate import Judgment, judged_population
from persona_pipeline.guard.gate import FEWEST_JUDGMENTS
from persona_pipeline.guard.labels.files import LABELS, MOST_NOTE, Label, label_of, load_label_files, write_label_files
from persona_pipeline.guard.labels.messages import (
    OF_OTHER_TEXTS,
    MarkSource,
    MessageLabel,
    load_message_labels,
    message_label,
)
from persona_pipeline.reporting.text import asset
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.world.models import Message, grouped, seed_from
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS
from persona_pipeline.world.world import World

API = "/api/"
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


def labelling_order(judgments: Iterable[Judgment]) -> list[Judgment]:
    """Return the judgments in the order they are to be labelled: the dimensions in turn, at random within each.

    The same judgments give every labeller the same order, so that the labels of several people overlap.
    """
    drawn = sorted(judgments, key=lambda item: (seed_from(0, item.key), item.key))
    by_dimension = grouped(drawn, lambda item: item.dimension)
    turns = zip_longest(*(by_dimension[name] for name in ALL_DIMENSIONS if name in by_dimension))
    return [item for turn in turns for item in turn if item is not None]


@dataclass(frozen=True)
class Answered:
    """The last action, with the label that was there before (None: no label). ``label`` None: the judgment was skipped."""

    item: Judgment
    label: Label | None
    before: Label | None


class Labelling:
    """One person's work on judgments. Every answer is in the label files when its call returns.

    Attributes:
        judgments: all that may be labelled.
        last: the last action of this session, None at its start.
    """

    def __init__(self, folder: Path, judgments: Sequence[Judgment], labeller: str) -> None:
        self.folder, self.judgments, self.labeller = folder, judgments, labeller
        self._by_key = {item.key: item for item in labelling_order(judgments)}
        self._done: list[Answered] = []
        # What was skipped comes last, what was taken back first.
        self._turns: dict[str, int] = {}
        self._actions = count(1)
        self._lock = threading.RLock()
        self._read: tuple[list[str], list[Label]] = [], []

    @property
    def last(self) -> Answered | None:
        return self._done[-1] if self._done else None

    def labelled(self) -> dict[str, Label]:
        """Return this person's labels by key; ConfigError: the label files are not valid."""
        paths = Label.paths(self.folder)
        looks = [f"{path} {look_of(path.stat())}" for path in paths]
        if looks != self._read[0]:
            self._read = looks, load_label_files(Label, paths)
        return {label.key: label for label in self._read[1] if label.labeller == self.labeller}

    def current(self) -> Judgment | None:
        """Return the judgment to be labelled now; None: all are labelled.

        Dimensions that have enough labels wait for the others.
        """
        with self._lock:
            done = self.labelled()
            enough = {item["dimension"] for item in self.progress() if item["done"] >= FEWEST_JUDGMENTS}
            left = [item for key, item in self._by_key.items() if key not in done]
            return min(left, key=lambda item: (self._turns.get(item.key, 0), item.dimension in enough), default=None)

    def progress(self) -> list[dict[str, Any]]:
        """Return, for each dimension, how many of its judgments there are and how many this person has labelled."""
        done, judged = self.labelled(), grouped(self.judgments, lambda item: item.dimension)
        return [
            {"dimension": name, "done": sum(item.key in done for item in judged[name]), "judged": len(judged[name])}
            for name in ALL_DIMENSIONS
            if name in judged
        ]

    def answer(self, key: str, score: int | None, note: str = "") -> None:
        """Write a label. ``score``: 0-9; None: not applicable.

        Raises ``KeyError``: there is no such judgment; ``ValueError``: invalid score or note; ``ConfigError``: the label files are
        not valid.
        """
        with self._lock:
            judgment = self._by_key[key]
            label = label_of(judgment.request, score, labeller=self.labeller, note=note.strip())
            before = self.labelled().get(key)
            write_label_files(Label, self.folder, [label])
            self._turns.pop(key, None)
            self._done.append(Answered(judgment, label, before))

    def skip(self, key: str) -> None:
        """Put a judgment at the end of the queue, for this session. Raises ``KeyError``: there is no such judgment."""
        with self._lock:
            self._done.append(Answered(self._by_key[key], None, None))
            self._turns[key] = next(self._actions)

    def undo(self) -> Answered | None:
        """Take back the last action of this session and return it; its judgment comes next. None: there is no such action."""
        with self._lock:
            last = self.last
            if last is None:
                return None
            if last.label is not None:
                before = [last.before] if last.before else []
                write_label_files(Label, self.folder, before, remove=[last.label.identity])
            self._done.pop()
            self._turns[last.item.key] = -next(self._actions)
            return last


class SkipRequest(BaseModel, extra="forbid", strict=True):
    """The judgment that is skipped."""

    key: str


class AnswerRequest(SkipRequest):
    """An answer to the judgment that is shown."""

    answer: int | Literal["not_applicable"]
    note: str = Field("", max_length=MOST_NOTE)


# Opens the judgments of an agent and of a dimension ("": of all), or those of each agent's newest window alone.
OpenSession = Callable[[str, str, bool], Labelling]


def sessions_of(world: World, labeller: str) -> OpenSession:
    """Return what opens the judgments of a world. It raises ``ConfigError``: invalid files, or nothing is judged yet."""

    def opened(agent: str, dimension: str, newest: bool) -> Labelling:
        judged = judged_population(world, [agent] if agent else None, [dimension] if dimension else None)
        if not judged:
            raise NothingError("nothing of this is judged yet; run persona-pipeline evaluate --judge anthropic")
        if newest:
            ends = dict(sorted((item.request.agent_id, item.window.end) for item in judged))
            judged = [item for item in judged if item.window.end == ends[item.request.agent_id]]
        return Labelling(world.root / LABELS, judged, labeller)

    return opened


def _chosen(request: Request, agent: str = "", dimension: str = "", newest: bool = False) -> Labelling:
    # Two requests at the same time get the same session.
    with request.app.state.opening:
        return request.app.state.open_session(agent, dimension, newest)


_Chosen = Annotated[Labelling, Depends(_chosen)]


def label_app(open_session: OpenSession) -> FastAPI:
    """Return the application of the labelling page; each session is opened when it is first asked for, and once."""
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
        (RequestValidationError, 422, "the page sent an invalid request; reload it"),
        (KeyError, 404, "there is no such judgment any more; reload the page"),
        (ConfigError, 409, None),
        (ValueError, 422, None),
        (OSError, 507, None),
    ):
        app.add_exception_handler(error, _refused(status, detail))
    return app


def _state(session: Labelling, undone: Answered | None = None) -> Response:
    current, last = session.current(), session.last
    return _json(
        {
            "labeller": session.labeller,
            "target": FEWEST_JUDGMENTS,
            "progress": session.progress(),
            "item": current and _shown(current, undone.label.note if undone and undone.label else ""),
            "last": last and _last(last),
        }
    )


def _shown(current: Judgment, note: str) -> Mapping[str, Any]:
    """Return what the judge was shown, and not what it said. ``note``: of an answer that was taken back."""
    request = current.request
    return {
        "key": request.key,
        "dimension": request.dimension,
        "claim": request.claim,
        "persona": request.persona,
        "transcript": request.trajectory.content(),
        "note": note,
    }


def _last(last: Answered) -> Mapping[str, Any]:
    # Only an answer lets the labeller see what the judge said.
    verdicts = last.item.verdicts if last.label else ()
    by_judge = grouped(verdicts, lambda verdict: (verdict.model, verdict.prompt_version))
    return {
        "claim": last.item.request.claim,
        "answer": last.label and _said(last.label.score),
        "judges": [
            {
                "model": model or "the judge",
                "said": [_said(verdict.score) for verdict in own],
                "reasoning": own[0].reasoning,
            }
            for (model, _), own in by_judge.items()
        ],
    }


def _said(score: int | None) -> str:
    return "n/a" if score is None else str(score)


def serving(name: str, before: str = "") -> Callable[[], Response]:
    """Return a handler that sends a file of the page, after another text."""
    text = before + asset(name, "persona_pipeline.viewer")
    kind = _TYPES[name.rpartition(".")[2]]
    return lambda: Response(text, media_type=kind)


def _refused(status: int, detail: str | None) -> Callable[[Request, Exception], Response]:
    """Return a handler that reports an error: ``detail``, by default the error's own words."""
    return lambda _, error: _json({"detail": detail or str(error)}, status)


def _json(data: Any, status: int = 200) -> Response:
    # In ASCII: transcripts may hold lone surrogates, which UTF-8 cannot encode.
    return Response(json.dumps(data), status_code=status, media_type="application/json")


# Names of thumbs in forms and addresses.
THUMBS = {"up": Role.IN, "down": Role.OUT, "unclear": Role.UNCLEAR}


class ChangedMeanwhileError(ValueError):
    """The label is not the one that was shown: another tab or command has changed it in between."""

    def __init__(self, now: MessageLabel | None) -> None:
        said = "no label of yours" if now is None else f"your label “{now.verdict}”"
        super().__init__(f"Meanwhile this message has {said}, by another tab or command.")


@dataclass
class Thumbs:
    """One person's thumbs, in the file of message labels."""

    folder: Path
    labeller: str
    # The label before and after each thumb since the page was started; None: no label.
    done: list[tuple[MessageLabel | None, MessageLabel | None]] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _read: tuple[object, Mapping[str, list[MessageLabel]]] = (None, {})

    def labels(self) -> Mapping[str, list[MessageLabel]]:
        """Return the labels of texts that were sent, by message; ConfigError: the label file is not valid."""
        looks = [look_of(path.stat()) for path in MessageLabel.paths(self.folder)]
        with self._lock:
            if self._read[0] != looks:
                sent = [label for label in load_message_labels(self.folder) if label.source not in OF_OTHER_TEXTS]
                self._read = looks, grouped(sent, lambda label: label.message)
            return self._read[1]

    def own(self, message_id: str, agent_id: str) -> MessageLabel | None:
        """Return the newest label that this person gave a message of an agent, whatever the message said then."""
        labels, wanted = self.labels().get(message_id, ()), (self.labeller, agent_id)
        mine = [label for label in labels if (label.labeller, label.agent_id) == wanted]
        return max(mine, key=lambda label: label.labelled_at, default=None)

    def give(self, message: Message, thumb: str, *, seen: str | None = None) -> None:
        """Write the label of a thumb (see ``THUMBS``), or take it away (""). ``seen``: the ``stamp`` of the label that was shown.

        Raises ChangedMeanwhileError: the label is another one; ValueError: the message cannot be labelled, or a ConfigError.
        """
        verdict = THUMBS[thumb] if thumb else None
        with self._lock:
            before = self.own(message.id, message.agent_id)
            if verdict == (before and before.verdict):
                return
            if seen is not None and stamp(before) != seen:
                raise ChangedMeanwhileError(before)
            after = message_label(message, verdict, self.labeller, MarkSource.PERSON) if verdict else None
            self._write(after, remove=before)
            self.done.append((before, after))

    def undo(self) -> str | None:
        """Take back the last thumb since the page was started, and return the message's id; None: there is no such thumb.

        Raises ChangedMeanwhileError: the label was changed elsewhere since; it is left, and no longer undone.
        """
        with self._lock:
            before, after = self.done[-1] if self.done else (None, None)
            known = after or before
            if known is None:
                return None
            now = self.own(known.message, known.agent_id)
            if stamp(now) != stamp(after):
                self.done.pop()
                raise ChangedMeanwhileError(now)
            self._write(before, remove=after)
            self.done.pop()
            return known.message

    def _write(self, label: MessageLabel | None, *, remove: MessageLabel | None) -> None:
        gone = [remove.identity] if remove else []
        write_label_files(MessageLabel, self.folder, [label] if label else [], remove=gone)


def stamp(label: MessageLabel | None) -> str:
    """Return what distinguishes a label from another of the same person and message."""
    return "" if label is None else f"{label.verdict} {label.labelled_at}"
