"""Targets with given answers: ``mock`` from the targets file, ``replay`` from a file of recorded answers."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from pydantic import Field

from persona_pipeline.suites.answering.base import Request, Responses, TargetFields, load_responses
from persona_pipeline.suites.answering.output import Output, parse_output
from persona_pipeline.suites.format.models import Text

DEFAULT_RESPONSE = '{"answer": "Mock target: set response in targets.yaml."}'


class MockTarget(TargetFields):
    """Answers with ``response``, or with the entry of ``responses`` for the test's id."""

    response: str | dict[str, Any] = Field(DEFAULT_RESPONSE, description="The answer: text, or messages and metrics.")
    responses: dict[str, Any] | None = Field(
        None, description="Answers by test id; of a conversation a list with one for each turn."
    )

    def respond(self, request: Request) -> Output:
        answer = (self.responses or {}).get(request.test.id, self.response)
        if request.test.is_conversation and isinstance(answer, list):
            if request.turn >= len(answer):
                said = f"it has {len(answer)} answers to {request.test.id!r}, and this is turn {request.turn + 1}"
                raise self.failure("no_response", said)
            answer = answer[request.turn]
        return parse_output(answer)


class ReplayTarget(TargetFields):
    """Returns the answers of a file: JSON by test id, JSON lines with ``id``, or results of an earlier run.

    An answer that was recorded for another request is stale, which is an error.
    """

    is_recorded: ClassVar[bool] = True

    path: Text = Field(description="The file, relative to the targets file.")

    @cached_property
    def _responses(self) -> Responses:
        return load_responses(self.allowed(self.path), self._grants.within)

    def open(self) -> None:
        _ = self._responses

    def respond(self, request: Request) -> Output:
        return self._responses.output(request.test.id, self.name, request.attempt, request.request_key)

    def fingerprint(self) -> Mapping[str, Any]:
        return {"provider": self.provider, "answers": self._responses.content_hash}
