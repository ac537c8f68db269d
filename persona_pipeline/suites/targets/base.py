"""Who answers a test. A target turns a request into an output or a failure; it never grades."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from persona_pipeline.suites.models import Test
from persona_pipeline.suites.output import Output


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


class Target(Protocol):
    """Anything that answers tests.

    Attributes:
        name: what suites and results call it.
        runs_code: answering runs programs of the suite's author, so it needs leave.
        workers: how many tests it answers at once, None for the run's default.
    """

    @property
    def name(self) -> str: ...

    @property
    def runs_code(self) -> bool: ...

    @property
    def workers(self) -> int | None: ...

    def respond(self, request: Request) -> Output:
        """Return the answer.

        Raises:
            TargetError: there is none.
        """
        ...

    def fingerprint(self) -> Mapping[str, Any]:
        """Return all that can change its answers, as JSON without secrets: the cache's key is made of it."""
        ...


@dataclass(frozen=True)
class TargetSettings:
    """What every entry of a targets file has in common."""

    name: str
    provider: str
    workers: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
