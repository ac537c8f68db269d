"""Who answers a test, and what each entry of a targets file has. A target turns a request into an output or a failure.

It is asked again where a failure can pass, its answers are kept on disk by everything that could change them, and it reaches what
it was granted: a suite from a stranger names neither secrets nor servers without leave.
"""

import contextlib
import dataclasses
import hashlib
import json
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, Field, PrivateAttr

from persona_pipeline.base.documents.json import write_atomically
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.suites.answering.responses import Output, OutputError, parse_output
from persona_pipeline.suites.format.field_types import StrictFields, Text
from persona_pipeline.suites.format.files import repository_root
from persona_pipeline.suites.format.models import Test

VERSION = 1


@dataclass(frozen=True)
class Grants:
    """What the user allows the targets of a suite.

    Attributes:
        environment: names of environment variables that the targets file may read.
        network: targets that ask a server may answer.
        roots: the folders that files of targets must lie in.
        own: the file is the user's own and no part of the suite's repository: it may read and reach what it names.
    """

    environment: frozenset[str] = frozenset()
    network: bool = False
    roots: tuple[Path, ...] = ()
    own: bool = False

    def reads(self, name: str) -> bool:
        """Whether the file may read an environment variable."""
        return self.own or name in self.environment

    def allows(self, path: Path) -> bool:
        """Whether a target may read a file, or what lies in a folder."""
        return self.own or any(path.resolve().is_relative_to(root) for root in self.roots)

    @property
    def reaches(self) -> bool:
        """Whether a target may ask a server."""
        return self.own or self.network


OWN = Grants(own=True)


def grants_for(
    targets: Path,
    suite: Path,
    *,
    environment: Iterable[str] | None = None,
    network: bool | None = None,
    folders: Iterable[Path] = (),
) -> Grants:
    """Return what a targets file may reach for a suite: all that it names if it lies outside the suite's repository (else folder).

    Args:
        environment, network: what is allowed to one inside; by default what the settings say, which is nothing unless set.
        folders: whose files it may name beside those of the repository and what the settings allow.
    """
    settings = get_settings()
    environment = settings.suite_environment if environment is None else environment
    network = settings.suite_allow_targets if network is None else network
    folder = suite.resolve().parent
    top = (repository_root(folder) or folder).resolve()
    # A link in the repository to a file outside is the repository's.
    places = (targets.resolve(), targets.absolute().parent.resolve() / targets.name)
    own = not any(place.is_relative_to(top) for place in places)
    roots = tuple(place.resolve() for place in (top, settings.world_root, *settings.suite_paths, *folders))
    return Grants(frozenset(environment), network, roots, own)


def request_key(messages: Any, files: Mapping[str, str]) -> str:
    """Return a SHA-256 of what a target is asked: the messages, and the text of the files they name."""
    return _hash({"messages": messages, "files": dict(files)})


def cache_key(target: Mapping[str, Any], request: str, *, test_id: str, attempt: int) -> str:
    """Return the key of an answer.

    Args:
        target: the target's fingerprint: provider, model, address, prompt, everything but secrets.
        request: the request key.
        attempt: repeated attempts are different answers.
    """
    return _hash({"version": VERSION, "target": target, "request": request, "test_id": test_id, "attempt": attempt})


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


@dataclass(frozen=True)
class OutputCache:
    """Answers as ``<folder>/<2 hex digits>/<key>.json``. Only answers are kept, never failures."""

    folder: Path

    def path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"

    def get(self, key: str) -> Output | None:
        """Return the answer, None when there is none or its file cannot be used."""
        try:
            data = json.loads(self.path(key).read_bytes())
            return parse_output(data) if isinstance(data, dict) else None
        except (OSError, ValueError, RecursionError, OutputError):
            return None

    def put(self, key: str, output: Output) -> None:
        """Keep an answer. A full or read-only disk loses the entry, not the run."""
        with contextlib.suppress(OSError):
            write_atomically(self.path(key), json.dumps(output.to_dict(), ensure_ascii=True))


class TargetError(Exception):
    """The target did not answer.

    Attributes:
        reason: a word for machines, such as ``timeout``.
        transient: the same request might succeed later; only then is it tried again.
    """

    def __init__(self, reason: str, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.reason, self.message, self.transient = reason, message, transient


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
    """

    test: Test
    messages: Sequence[Mapping[str, Any]]
    prompt: str
    files: Sequence[str] = ()
    attempt: int = 0
    workspace: str | None = None
    timeout: float = 120.0
    request_key: str = ""


class TargetFields(StrictFields):
    """One target as it is written; subclasses are the providers.

    ``runs_code``: answering runs programs of the suite's author, so it needs leave. ``asks_network``: answering asks a server,
    so it needs leave where the suite names it.
    """

    model_config = ConfigDict(populate_by_name=True)

    runs_code: ClassVar[bool] = False
    asks_network: ClassVar[bool] = False

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
        path = self.folder / name
        if not self._grants.allows(path):
            raise ConfigError(
                f"target {self.name!r}: {name!r} lies outside the repository; move it, or allow its folder with --allow-path"
            )
        return path

    def close(self) -> None:
        """Let go of connections; one that answers again connects again."""

    def fingerprint(self) -> Mapping[str, Any]:
        """Return all that can change its answers, as JSON without secrets: the cache's key is made of it."""
        raise NotImplementedError


_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0


def ask(
    target: TargetFields, request: Request, *, most_retries: int, deadline: float | None = None
) -> tuple[Output, int]:
    """Return a target's answer and how many tries failed before it.

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
            return target.respond(dataclasses.replace(request, timeout=max(0.001, left))), retry
        except TargetError as problem:
            if not problem.transient or retry == most_retries:
                raise
            time.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**retry) * random.uniform(0.5, 1.0))
    raise AssertionError("unreachable")
