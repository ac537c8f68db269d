"""Targets: requests to them, their permissions, recorded and cached answers, and retries."""

import contextlib
import hashlib
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, Field, PrivateAttr

from persona_pipeline.base.documents.json import content_hash, write_atomically
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.files import open_regular, read_regular
from persona_pipeline.base.turn_forms import is_one_answer
from persona_pipeline.suites.answering.output import Output, OutputError, is_session, messages_of, parse_output
from persona_pipeline.suites.format.files import Files, ReasonedError
from persona_pipeline.suites.format.models import StrictFields, Test, Text
from persona_pipeline.suites.format.text import content_texts, json_file, json_rows

VERSION = 1
# The key of an answer for all tests without their own.
WHATEVER_TEST = "*"


@dataclass(frozen=True)
class Grants:
    """Permissions of the targets of a suite.

    Attributes:
        environment: environment variables that the targets file may read.
        network: whether targets may ask servers.
        roots: folders that files of targets must be in.
        own: the file is the user's own, outside the suite's repository, and has all permissions.
        world: folder of the world whose agents targets play if they name no other.
        prices: of models, in the form of ``PERSONA_JUDGE_PRICES``; None: those of the environment.
    """

    environment: frozenset[str] = frozenset()
    network: bool = False
    roots: tuple[Path, ...] = ()
    own: bool = False
    world: Path | None = None
    prices: str | None = None

    def reads(self, name: str) -> bool:
        """Return whether the file may read an environment variable."""
        return self.own or name in self.environment

    @property
    def within(self) -> tuple[Path, ...] | None:
        """The folders that named files must be in; None: any folder."""
        return None if self.own else self.roots

    @property
    def reaches(self) -> bool:
        """Whether a target may ask a server."""
        return self.own or self.network


OWN = Grants(own=True)


MAX_BYTES = 512_000_000


NOT_ALLOWED = "target_not_allowed"
# What to do where only the reason of missing answers is shown.
REMEDIES = {NOT_ALLOWED: "pass --allow-targets if you trust it, or give a targets file of your own"}


class TargetError(ReasonedError):
    """The target did not answer.

    Attributes:
        reason: a word for machines, such as ``timeout``.
        transient: whether a retry may succeed.
    """

    def __init__(self, reason: str, message: str, *, transient: bool = False) -> None:
        super().__init__(reason, message)
        self.transient = transient


@dataclass(frozen=True)
class Responses:
    """Recorded answers by test id, or by ``<test>@<target>``; a list has one answer per trial.

    ``content_hash``: SHA-256 of the file's text; "": they are not from a file.
    """

    answers: Mapping[str, Any]
    source: str = "the responses"
    content_hash: str = ""

    def key(self, test_id: str, target: str | None) -> str:
        """Return the key of a test's answer: with its target, without it, or that of a session, which answers every test."""
        return next((key for key in (f"{test_id}@{target}", test_id, WHATEVER_TEST) if key in self.answers), test_id)

    def output(self, test_id: str, target: str | None, attempt: int, request_key: str | None = None) -> Output:
        """Return the answer of an attempt.

        ``request_key``: of the current request; an answer recorded for another key is stale. Raises ``TargetError``: the
        answer is missing, stale, a recorded error, or of an unknown shape.
        """
        key = self.key(test_id, target)
        if key not in self.answers:
            said = f"{self.source} has no answer for {key!r}; record one or leave the test out"
            raise TargetError("no_response", said)
        value = messages_of(self.answers[key])
        if isinstance(value, list) and not is_one_answer(value):
            if attempt >= len(value):
                said = f"{self.source} has {len(value)} answers for {key!r}, attempt {attempt + 1} needs one more"
                raise TargetError("no_response", said)
            value = value[attempt]
        if isinstance(value, Mapping):
            error = value.get("error")
            if error:
                text = error.get("message") if isinstance(error, Mapping) else error
                raise TargetError("target_failed", f"the recorded answer is an error: {text}")
            if "__exit__" in value:
                raise TargetError("target_failed", f"the recorded target exited with code {value['__exit__']}")
            known = value.get("request_key")
            if known is not None and request_key is not None and known != request_key:
                raise TargetError("stale", f"the test has changed since {test_id!r} was recorded; record it again")
        try:
            return parse_output(value)
        except OutputError as problem:
            raise TargetError("invalid_response", f"{self.source}, {test_id!r}: {problem}") from problem


def read_responses(data: Any, source: str = "the responses") -> Responses:
    """Return the answers of a mapping from test id to answer, a list of rows with ``id``, or results of an earlier run.

    The session of an agent is the answer to every test. Raises ``ConfigError``: the data has another shape.
    """
    if isinstance(data, Mapping) and isinstance(data.get("tests"), list) and "summary" in data:
        data = data["tests"]
    if is_session(data):
        return Responses({WHATEVER_TEST: data}, source)
    if isinstance(data, Mapping):
        return Responses(data, source)
    if not isinstance(data, list):
        raise ConfigError(Problem("must map test ids to answers", source))
    answers: dict[str, Any] = {}
    for index, row in enumerate(data):
        name = row.get("id", row.get("test_id")) if isinstance(row, Mapping) else None
        if not isinstance(name, str):
            raise ConfigError(Problem(f"row {index + 1} has no id", source))
        if name in answers:
            raise ConfigError(Problem(f"row {index + 1}: id {name!r} is there twice; remove one", source))
        answers[name] = _answer_of(row)
    return Responses(answers, source)


def _answer_of(row: Mapping[str, Any]) -> Any:
    """The answer in a row: a list of attempts, or the row itself."""
    for key in ("responses", "attempts"):
        if isinstance(row.get(key), list):
            return row[key]
    trials = row.get("trials")
    if isinstance(trials, list) and trials and all(isinstance(item, Mapping) and "output" in item for item in trials):
        return trials
    return row


def load_responses(path: Path | str, roots: Sequence[Path] | None = None) -> Responses:
    """Read recorded answers from JSON (a mapping by test id) or JSON lines (a row per answer, with ``id``).

    ``roots``: folders that the file must be in; None: the caller's own file, which may be a pipe. Raises ``ConfigError``:
    the file cannot be read, or has another shape.
    """
    path = Path(path)
    text = read_results_file(path, roots)
    if path.suffix.lower() == ".jsonl":
        data = [row for *_, row in json_rows(text, str(path), "Malformed JSONL at line {number}: {error}")]
    else:
        data = json_file(text, str(path))
    return replace(read_responses(data, str(path)), content_hash=hashlib.sha256(text.encode()).hexdigest())


def read_results_file(path: Path, roots: Sequence[Path] | None = None) -> str:
    """Return the text of a file of answers or results; ``ConfigError``: it cannot be read. ``roots``: as for ``load_responses``."""
    try:
        with path.open("rb") if roots is None else open_regular(path, roots) as stream:
            raw = stream.read(MAX_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8"
        raise ConfigError(Problem(f"cannot be read ({reason})", str(path))) from error
    if len(raw) > MAX_BYTES:
        raise ConfigError(Problem(f"is larger than {MAX_BYTES:,} bytes; split it", str(path)))
    return text


def sent_messages(test: Test, files: Files) -> list[dict[str, str]]:
    """Return a test's messages with text as content. Raises ``FileError``: a file cannot be read."""
    return [
        {"role": message["role"], "content": _sent(message.get("content"), test, files)}
        for message in test.input_messages
    ]


def _sent(content: Any, test: Test, files: Files) -> str:
    """Return a message's content as text; a file part is the file's text between marks."""
    if not isinstance(content, list):
        return "".join(content_texts(content))
    texts = []
    for part in content:
        if part.get("type") == "file" and isinstance(part.get("value"), str):
            texts.append(f'<file path="{part["value"]}">\n{files.read(test.files[part["value"]])}\n</file>')
        elif isinstance(part.get("value", part.get("text")), str):
            texts.append(part.get("value", part.get("text")))
    return "\n".join(texts)


_PERSONA = """\
You are {name}. Stay in character in everything you write. Answer with what {name} would send in the chat, and nothing else.

# Who you are
{persona}"""


def persona_prompt(name: str, persona: str) -> str:
    """Return the system prompt of a model that plays a persona."""
    # Plain replacement: a persona is not a template.
    return _PERSONA.replace("{name}", name).replace("{persona}", persona)


def request_key(messages: Any, files: Mapping[str, str]) -> str:
    """Return a SHA-256 of a request: its messages, and the text of the files they name."""
    return content_hash({"messages": messages, "files": dict(files)})


def cache_key(target: Mapping[str, Any], request: str, *, test_id: str, attempt: int) -> str:
    """Return the key of a cached answer.

    ``target``: all that its answers depend on, without secrets. ``request``: the request key. ``attempt``: each attempt
    has its own answer.
    """
    return content_hash(
        {"version": VERSION, "target": target, "request": request, "test_id": test_id, "attempt": attempt}
    )


@dataclass(frozen=True)
class OutputCache:
    """Cached answers, at ``<folder>/<2 hex digits>/<key>.json``. Failures are not kept."""

    folder: Path

    def path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"

    def get(self, key: str) -> Output | None:
        """Return a cached answer; None: it is missing or cannot be read."""
        try:
            # A link in the folder may lead to another file.
            data = json.loads(read_regular(self.path(key), MAX_BYTES, [self.folder.resolve()]))
            return parse_output(data) if isinstance(data, dict) else None
        except (OSError, ValueError, RecursionError, OutputError):
            return None

    def put(self, key: str, output: Output) -> None:
        """Write an answer. On a full or read-only disk the answer is not cached."""
        with contextlib.suppress(OSError):
            if not self.path(key).resolve().is_relative_to(self.folder.resolve()):
                return
            write_atomically(self.path(key), json.dumps(output.to_dict(), ensure_ascii=True))


@dataclass(frozen=True)
class Request:
    """One request to a target.

    Attributes:
        messages: the conversation so far, as plain JSON (``role``, ``content`` as text).
        prompt: the messages as one text.
        files: absolute paths of the files the messages name.
        attempt: number of the trial, from 0.
        workspace: the folder to work in; None: no folder.
        timeout: seconds for the answer.
        turn: number of the answer in a conversation, from 0.
        conversation: a unique name, for agents that remember conversations.
    """

    test: Test
    messages: Sequence[Mapping[str, Any]]
    prompt: str
    files: Sequence[str] = ()
    attempt: int = 0
    workspace: str | None = None
    timeout: float = 120.0
    request_key: str = ""
    turn: int = 0
    conversation: str = ""

    @property
    def last_message(self) -> str:
        """The last message."""
        return str(self.messages[-1]["content"]) if self.messages else ""

    @property
    def named(self) -> dict[str, Any]:
        """Values that a target may use, by name."""
        return {
            "prompt": self.prompt,
            "messages": list(self.messages),
            "request": self,
            "test": self.test,
            "test_id": self.test.id,
            "metadata": dict(self.test.metadata or {}),
            "attempt": self.attempt,
            "workspace": self.workspace,
            "files": list(self.files),
            "last_message": self.last_message,
            "turn": self.turn + 1,
            "conversation": self.conversation,
        }


class TargetFields(StrictFields):
    """One target as it is written; subclasses are the providers.

    ``runs_code``: answering runs programs of the suite's author, so it needs permission. ``asks_network``: answering asks
    a server, so it needs permission where the suite names the target.
    """

    model_config = ConfigDict(populate_by_name=True)

    runs_code: ClassVar[bool] = False
    asks_network: ClassVar[bool] = False
    # Its answers depend only on its entry and the request. It plays an agent of the world.
    is_model: ClassVar[bool] = False
    # It returns a whole recorded conversation at once.
    is_recorded: ClassVar[bool] = False
    plays_agent: ClassVar[bool] = False
    # Older names of fields.
    older_names: ClassVar[dict[str, str]] = {}

    name: Text = Field(description="What suites call it.")
    provider: Text = Field(description="Which kind of target this is.")
    workers: int | None = Field(None, ge=1, le=256, description="How many tests it answers at once.")
    judge_target: Text | None = Field(None, description="Accepted; judgments come from the project's judge.")

    # The folder of the targets file: relative paths start there.
    _folder: Path = PrivateAttr(Path())
    _grants: Grants = PrivateAttr(OWN)

    @property
    def folder(self) -> Path:
        return self._folder

    def respond(self, request: Request) -> Output:
        """Return the answer. Raises ``TargetError``: the target did not answer."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Load modules and connect, before an attempt's time begins. Raises ``TargetError``: the target cannot answer."""

    def failure(self, reason: str, said: str, *, transient: bool = False) -> TargetError:
        """Return an error of this target, whose name is put before what it says."""
        return TargetError(reason, f"target {self.name!r}: {said}", transient=transient)

    def allowed(self, name: str) -> Path:
        """Return the file or folder that a target names. Raises ``ConfigError``: its folder is not allowed."""
        path, roots = self.folder / name, self._grants.within
        if roots is not None and not any(path.resolve().is_relative_to(root) for root in roots):
            said = f"{name!r} lies outside the repository; move it, or allow its folder with --allow-path"
            raise ConfigError(f"target {self.name!r}: {said}")
        return path

    def close(self) -> None:
        """Close connections; another answer opens them again."""

    def fingerprint(self) -> Mapping[str, Any]:
        """Return all that can change its answers, as JSON without secrets: by default its entry.

        Values of headers may be secrets.
        """
        data = self.model_dump(mode="json", exclude={"api_key"})
        return {key: sorted(value) if key == "headers" else value for key, value in data.items()}


def chat_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages as OpenAI's APIs take them. A tool's message becomes the user's: the call that it answers is not known."""
    return [
        {
            "role": role if (role := message["role"]) in ("system", "assistant") else "user",
            "content": message["content"],
        }
        for message in messages
        if message["content"].strip()
    ]


_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0


def ask(target: TargetFields, request: Request, *, most_retries: int, deadline: float | None = None) -> Output:
    """Return a target's answer, with retries after failures that can pass.

    ``request``: its timeout is that of each try. ``deadline``: the end of the first try, on the monotonic clock; None: by
    the timeout. Raises ``TargetError``: the target did not answer.
    """
    for retry in range(most_retries + 1):
        # A retry has the whole time again. After a timeout there would be no time left.
        left = request.timeout if deadline is None or retry else deadline - time.monotonic()
        try:
            return target.respond(replace(request, timeout=max(0.001, left)))
        except OutputError as problem:
            raise target.failure("invalid_response", str(problem)) from problem
        except TargetError as problem:
            if not problem.transient or retry == most_retries:
                raise
            time.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**retry) * random.uniform(0.5, 1.0))
    raise AssertionError("unreachable")
