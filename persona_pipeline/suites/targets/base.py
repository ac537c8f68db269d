"""Who answers a test. A target turns a request into an output or a failure; it never grades."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from persona_pipeline.suites.format.models import Test


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
