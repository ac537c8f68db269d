"""``replay``: answers recorded earlier."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import Field

from persona_pipeline.suites.answering.base import (
    Request,
    ResponseError,
    Responses,
    TargetError,
    TargetFields,
    load_responses,
)
from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.models import Text


class ReplayTarget(TargetFields):
    """Gives the answers of a file: JSON by test id, JSON lines with ``id``, or results of an earlier run.

    An answer that was recorded with the key of what was asked is stale once the test asks something else: an error, not an answer.
    """

    path: Text = Field(description="The file, relative to the targets file.")

    @cached_property
    def _responses(self) -> Responses:
        return load_responses(self.allowed(self.path), self._grants.within)

    def open(self) -> None:
        _ = self._responses

    def respond(self, request: Request) -> Output:
        try:
            return self._responses.output(request.test.id, self.name, request.attempt, request.request_key)
        except ResponseError as problem:
            raise TargetError(problem.reason, problem.message) from problem

    def fingerprint(self) -> Mapping[str, Any]:
        return {"provider": self.provider, "answers": self._responses.content_hash}
