"""Asking a target: what it is asked, what it may reach, what its answer depends on, and answers kept or recorded.

It is asked again where a failure can pass. A suite from a stranger names neither secrets nor servers without leave.
"""

import contextlib
import hashlib
import json
import os
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ConfigDict, Field, PrivateAttr

from persona_pipeline.base.documents.json import content_hash, write_atomically
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.files import open_regular, read_regular, repository_of
from persona_pipeline.base.settings import Settings
from persona_pipeline.base.turns import is_one_answer
from persona_pipeline.suites.answering.output import Output, OutputError, is_session, messages_of, parse_output
from persona_pipeline.suites.format.files import FileError, Files, ReasonedError, default_roots
from persona_pipeline.suites.format.loading.messages import find_file_part
from persona_pipeline.suites.format.models import StrictFields, Suite, Test, Text
from persona_pipeline.suites.format.text import json_file, json_rows, stringify
from persona_pipeline.world.personas import is_world

if TYPE_CHECKING:
    from persona_pipeline.world.models import Persona

VERSION = 1
# The answer to each test that has none of its own.
WHATEVER_TEST = "*"


@dataclass(frozen=True)
class Grants:
    """What the user allows the targets of a suite.

    Attributes:
        environment: names of environment variables that the targets file may read.
        network: targets that ask a server may answer.
        roots: the folders that files of targets must lie in.
        own: the file is the user's own and no part of the suite's repository: it may read and reach what it names.
        world: the folder of the world whose agents targets play where they do not name another.
        prices: of models, as ``PERSONA_JUDGE_PRICES`` has them; None: the environment's.
    """

    environment: frozenset[str] = frozenset()
    network: bool = False
    roots: tuple[Path, ...] = ()
    own: bool = False
    world: Path | None = None
    prices: str | None = None

    def reads(self, name: str) -> bool:
        """Whether the file may read an environment variable."""
        return self.own or name in self.environment

    @property
    def within(self) -> tuple[Path, ...] | None:
        """The folders that what it names must lie in, None for anywhere."""
        return None if self.own else self.roots

    @property
    def reaches(self) -> bool:
        """Whether a target may ask a server."""
        return self.own or self.network


OWN = Grants(own=True)


def grants_for(
    targets: Path,
    suite: Path,
    settings: Settings,
    *,
    environment: Iterable[str] = (),
    network: bool = False,
    folders: Iterable[Path] = (),
) -> Grants:
    """Return what a targets file may reach for a suite: all that it names if it lies outside the suite's repository (else folder).

    Args:
        environment, network: what is allowed to one inside; else what the settings say, which is nothing unless set.
        folders: whose files it may name beside those of the repository and what the settings allow.
    """
    (top,) = default_roots(suite)
    # What a link in the repository leads to, be it the file or a folder on the way there, is the repository's.
    named = Path(os.path.abspath(targets))  # noqa: PTH100 -- links on the way stay
    places = [place.resolve() for place in (targets, named, *named.parents)]
    world = settings.world_root if is_world(settings.world_root) else None
    return Grants(
        frozenset([*environment] or settings.suite_environment),
        network or settings.suite_allow_targets,
        tuple(place.resolve() for place in (top, world or top, *settings.suite_paths, *folders)),
        own=not any(place.is_relative_to(top) for place in places),
        world=world,
        prices=settings.judge_prices,
    )


MAX_BYTES = 512_000_000


class TargetError(ReasonedError):
    """The target did not answer.

    Attributes:
        reason: a word for machines, such as ``timeout``.
        transient: the same request might succeed later; only then is it tried again.
    """

    def __init__(self, reason: str, message: str, *, transient: bool = False) -> None:
        super().__init__(reason, message)
        self.transient = transient


class ResponseError(TargetError):
    """There is no recorded answer to give."""


@dataclass(frozen=True)
class Responses:
    """Recorded answers by test id, or by ``<test>@<target>``; a list holds one a trial.

    ``content_hash``: SHA-256 of the file's text that they came from, ``""`` where there was none.
    """

    answers: Mapping[str, Any]
    source: str = "the responses"
    content_hash: str = ""

    def key(self, test_id: str, target: str | None) -> str:
        """Return the key of a test's answer: with its target, alone, or that of a session, which answers every test."""
        return next((key for key in (f"{test_id}@{target}", test_id, WHATEVER_TEST) if key in self.answers), test_id)

    def raw(self, test_id: str, target: str | None, attempt: int) -> Any:
        """Return what is recorded for one attempt.

        Raises:
            ResponseError: nothing is.
        """
        key = self.key(test_id, target)
        if key not in self.answers:
            raise ResponseError(
                "no_response", f"{self.source} has no answer for {key!r}; record one or leave the test out"
            )
        value = messages_of(self.answers[key])
        if not isinstance(value, list) or is_one_answer(value):
            return value
        if attempt >= len(value):
            raise ResponseError(
                "no_response",
                f"{self.source} has {len(value)} answers for {key!r}, attempt {attempt + 1} needs one more",
            )
        return value[attempt]

    def output(self, test_id: str, target: str | None, attempt: int, request_key: str | None = None) -> Output:
        """Return the answer of one attempt.

        Args:
            request_key: what is asked now; an answer recorded with another key is stale.

        Raises:
            ResponseError: there is none, it has no known shape, it is stale, or an error was recorded.
        """
        value = self.raw(test_id, target, attempt)
        if isinstance(value, Mapping):
            error = value.get("error")
            if error:
                text = error.get("message") if isinstance(error, Mapping) else error
                raise ResponseError("target_failed", f"the recorded answer is an error: {text}")
            if "__exit__" in value:
                raise ResponseError("target_failed", f"the recorded target exited with code {value['__exit__']}")
            known = value.get("request_key")
            if known is not None and request_key is not None and known != request_key:
                raise ResponseError("stale", f"the test has changed since {test_id!r} was recorded; record it again")
        try:
            return parse_output(value)
        except OutputError as problem:
            raise ResponseError("invalid_response", f"{self.source}, {test_id!r}: {problem}") from problem


def read_responses(data: Any, source: str = "the responses") -> Responses:
    """Return the answers of a mapping from test id to answer, a list of rows with an ``id``, or results of an earlier run.

    The session of an agent is its answer to whatever test is graded.

    Raises:
        ConfigError: it is none of these.
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
            raise ConfigError(Problem(f"row {index + 1}: id {name!r} stands twice; remove one", source))
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
    """Read recorded answers from JSON (a mapping by test id) or JSON lines (a row an answer, with ``id``).

    Args:
        roots: folders that it must be a regular file in; None: the caller's own file, which may be a pipe.

    Raises:
        ConfigError: the file cannot be read, or is neither.
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


class PromptFiles:
    """Finds and reads the file parts of a suite's messages, confined as the suite's other files are."""

    def __init__(self, suite: Suite) -> None:
        self.files = Files(suite.roots)
        self.suite_folder = suite.path.absolute().parent
        self.top = repository_of(self.suite_folder)

    def find(self, reference: str, test: Test) -> Path:
        """Return the file of a part. Raises ``FileError`` when it is gone."""
        own = Path(test.entry.source.path).parent if test.entry else self.suite_folder
        return find_file_part(self.files, reference, [own, self.suite_folder], self.top)

    def read(self, reference: str, test: Test) -> str:
        return self.files.read(self.find(reference, test))

    def messages(self, test: Test) -> list[dict[str, str]]:
        """Return a test's messages with their content as text. Raises ``FileError`` when a file is gone or cannot be read."""
        return [
            {"role": message["role"], "content": self._text(message.get("content"), test)}
            for message in test.input_messages
        ]

    def _text(self, content: Any, test: Test) -> str:
        """Return a message's content as text; a file part is the file's text between marks."""
        if isinstance(content, str):
            return content
        if isinstance(content, dict):
            return stringify(content, indent=2)
        texts = []
        for part in content if isinstance(content, list) else ():
            if part.get("type") == "file" and isinstance(part.get("value"), str):
                texts.append(f'<file path="{part["value"]}">\n{self.read(part["value"], test)}\n</file>')
            elif isinstance(part.get("value", part.get("text")), str):
                texts.append(part.get("value", part.get("text")))
        return "\n".join(texts)


def inputs(suite: Suite) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield each test's id with its messages, as a target would be sent them; of a conversation its first turn.

    Raises:
        ConfigError: a file that a message names is gone.
    """
    files = PromptFiles(suite)
    for test in suite.tests:
        first = [*test.input_messages, *(test.turns[0].input_messages if test.turns else ())]
        try:
            if first:
                yield test.id, files.messages(replace(test, input_messages=tuple(first)))
        except FileError as error:
            raise ConfigError(error.problem(suite.path)) from error


_PERSONA = """\
You are {name}. Stay in character in everything you write. Answer with what {name} would send in the chat, and nothing else.

# Who you are
{persona}"""


def persona_prompt(persona: "Persona") -> str:
    """Return the system prompt of a model that plays a persona."""
    # Plain replacement: nothing in a persona is a template.
    return _PERSONA.replace("{name}", persona.display_name).replace("{persona}", persona.persona)


def file_parts(test: Test) -> list[str]:
    """Return the paths of file parts of the input, and of the user's lines of a conversation, as they are written."""
    return [
        part["value"]
        for asked in (test, *test.turns)
        for message in asked.input_messages
        if isinstance(message.get("content"), list)
        for part in message["content"]
        if part.get("type") == "file" and isinstance(part.get("value"), str)
    ]


def request_key(messages: Any, files: Mapping[str, str]) -> str:
    """Return a SHA-256 of what a target is asked: the messages, and the text of the files they name."""
    return content_hash({"messages": messages, "files": dict(files)})


def cache_key(target: Mapping[str, Any], request: str, *, test_id: str, attempt: int) -> str:
    """Return the key of an answer.

    Args:
        target: the target's fingerprint: provider, model, address, prompt, everything but secrets.
        request: the request key.
        attempt: repeated attempts are different answers.
    """
    return content_hash(
        {"version": VERSION, "target": target, "request": request, "test_id": test_id, "attempt": attempt}
    )


@dataclass(frozen=True)
class OutputCache:
    """Answers as ``<folder>/<2 hex digits>/<key>.json``. Only answers are kept, never failures."""

    folder: Path

    def path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"

    def get(self, key: str) -> Output | None:
        """Return the answer, None when there is none or its file cannot be used."""
        try:
            # A link in the folder may lead to what is no answer.
            data = json.loads(read_regular(self.path(key), MAX_BYTES, [self.folder.resolve()]))
            return parse_output(data) if isinstance(data, dict) else None
        except (OSError, ValueError, RecursionError, OutputError):
            return None

    def put(self, key: str, output: Output) -> None:
        """Keep an answer. A full or read-only disk loses the entry, not the run."""
        with contextlib.suppress(OSError):
            if not self.path(key).resolve().is_relative_to(self.folder.resolve()):
                return
            write_atomically(self.path(key), json.dumps(output.to_dict(), ensure_ascii=True))


@dataclass(frozen=True)
class Request:
    """One question to a target.

    Attributes:
        messages: the conversation so far, as plain JSON (``role``, ``content`` as text).
        prompt: the same as one text.
        files: absolute paths of the files the messages name.
        attempt: 0-based number of the trial.
        workspace: the folder to work in, None without one.
        timeout: seconds the answer may take.
        turn: 0-based number of the answer in a conversation.
        conversation: a name for it that nobody else has, for agents that remember what was said.
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
        """What was said last."""
        return str(self.messages[-1]["content"]) if self.messages else ""

    @property
    def named(self) -> dict[str, Any]:
        """What targets are told of it, by the names that they may use."""
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

    ``runs_code``: answering runs programs of the suite's author, so it needs leave. ``asks_network``: answering asks a server,
    so it needs leave where the suite names it.
    """

    model_config = ConfigDict(populate_by_name=True)

    runs_code: ClassVar[bool] = False
    asks_network: ClassVar[bool] = False
    # Its answers depend on nothing but its entry and what it is asked; it plays an agent of the world.
    is_model: ClassVar[bool] = False
    # It gives a whole conversation at once, as it was recorded.
    is_recorded: ClassVar[bool] = False
    plays_agent: ClassVar[bool] = False
    # Older spellings that are read too, by the field they stand for.
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
        """Return the answer.

        Raises:
            TargetError: there is none.
        """
        raise NotImplementedError

    def prepare(self) -> None:
        """Load and connect what answering needs, before an attempt's time runs. ``TargetError``: it cannot answer."""

    def require_network(self) -> None:
        """Raises ``TargetError`` where the suite names the target and nobody gave it leave to ask a server."""
        if not self._grants.reaches:
            raise TargetError(
                "target_not_allowed",
                f"target {self.name!r} asks a server; pass --allow-targets if you trust it, or give a targets file of your own",
            )

    def allowed(self, name: str) -> Path:
        """Return the file or folder that a target names.

        Raises:
            ConfigError: it lies outside, and nobody allowed its folder.
        """
        path, roots = self.folder / name, self._grants.within
        if roots is not None and not any(path.resolve().is_relative_to(root) for root in roots):
            raise ConfigError(
                f"target {self.name!r}: {name!r} lies outside the repository; move it, or allow its folder with --allow-path"
            )
        return path

    def close(self) -> None:
        """Let go of connections; one that answers again connects again."""

    def fingerprint(self) -> Mapping[str, Any]:
        """Return all that can change its answers, as JSON without secrets: the cache's key is made of it. By default its entry.

        Values of headers may be secrets.
        """
        data = self.model_dump(mode="json", exclude={"api_key"})
        return {key: sorted(value) if key == "headers" else value for key, value in data.items()}


_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0


def ask(target: TargetFields, request: Request, *, most_retries: int, deadline: float | None = None) -> Output:
    """Return a target's answer, asked for again where a failure can pass.

    Args:
        request: its timeout is that of each try.
        deadline: when the first try ends at the latest, on the monotonic clock; None: by its timeout.

    Raises:
        TargetError: there is no answer.
    """
    for retry in range(most_retries + 1):
        # A retry has the whole time again: what can pass is a timeout, and it would have none left.
        left = request.timeout if deadline is None or retry else deadline - time.monotonic()
        try:
            return target.respond(replace(request, timeout=max(0.001, left)))
        except TargetError as problem:
            if not problem.transient or retry == most_retries:
                raise
            time.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**retry) * random.uniform(0.5, 1.0))
    raise AssertionError("unreachable")
