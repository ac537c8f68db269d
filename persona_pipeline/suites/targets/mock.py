"""``mock``: the same answer to everything, or one a test."""

import time
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from persona_pipeline.suites.answering.base import Request, TargetError, TargetFields
from persona_pipeline.suites.answering.output import Output, OutputError, parse_output
from persona_pipeline.suites.format.models import Limit

DEFAULT_RESPONSE = '{"answer": "Mock target: set response in targets.yaml."}'


class MockTarget(TargetFields):
    """Answers with ``response``, or with what ``responses`` holds for the test's id."""

    response: str | dict[str, Any] = Field(DEFAULT_RESPONSE, description="The answer: text, or messages and metrics.")
    responses: dict[str, Any] | None = Field(None, description="Answers by test id.")
    delay_ms: Limit = Field(0, alias="delayMs", description="How long it seems to think.")

    def respond(self, request: Request) -> Output:
        if self.delay_ms:
            if self.delay_ms / 1000 > request.timeout:
                time.sleep(request.timeout)
                raise TargetError("timeout", f"no answer within {request.timeout:g} s", transient=True)
            time.sleep(self.delay_ms / 1000)
        answer = (self.responses or {}).get(request.test.id, self.response)
        try:
            return parse_output(answer)
        except OutputError as problem:
            raise TargetError("invalid_response", f"target {self.name!r}: {problem}") from problem

    def fingerprint(self) -> Mapping[str, Any]:
        return self.model_dump(mode="json")
