"""Targets that are models, in the Messages API, chat completions or the Responses API.

Each has one client for a run.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, SecretStr, field_validator

from persona_pipeline.base.calls import Timing
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import DEFAULT_JUDGE_MODEL
from persona_pipeline.base.turns import Turn, read_turns
from persona_pipeline.suites.answering.base import Request, TargetError, chat_messages
from persona_pipeline.suites.answering.output import Output, TokenUsage, parse_output
from persona_pipeline.suites.format.models import Text
from persona_pipeline.suites.targets.python import AwaitedTarget

# Longest time of a request. The deadline of a run is usually earlier.
_LONGEST_SECONDS = 3600.0
# Parameters that have a field of the target, or come from the test.
_TAKEN = (
    "model", "messages", "input", "system", "instructions", "stream",
    "max_tokens", "max_completion_tokens", "max_output_tokens",
)  # fmt: skip
_REFUSED = ("refusal", "content_filter")
# Keys of a message that are kept.
_KEPT = ("role", "content", "thinking", "tool_calls")


class ModelTarget(AwaitedTarget):
    """Sends the test's messages to a model, with a provider's SDK. Subclasses define the request."""

    asks_network: ClassVar[bool] = True
    retried: ClassVar[bool] = True
    is_model: ClassVar[bool] = True
    # The judges' provider to use; None: that of the target.
    _asks: ClassVar[str | None] = None
    model: Text = Field(description="The model's id.")
    max_tokens: int = Field(2048, ge=1, description="For the answer and the thinking before it.")
    system: str | None = Field(None, description="Put before the test's own system messages.")
    api_key: SecretStr | None = Field(None, description="By default that of the environment.")
    max_retries: int = Field(2, ge=0, le=10, description="How often the SDK tries again what can pass.")
    parameters: dict[str, Any] | None = Field(
        None, description="Further fields of the request, as the server calls them: temperature, tools, seed, ..."
    )
    base_url: Text | None = Field(None, description="By default what the environment says, else the provider's own.")

    _client: Any = PrivateAttr(None)

    @field_validator("parameters")
    @classmethod
    def _of_the_model(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        for name in value or ():
            if name in _TAKEN:
                raise ValueError(f"may not hold {name}: that is the test's, or a field of the target itself")
        return value

    def body(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the request for the next message of a conversation."""
        raise NotImplementedError

    def system_prompt(self) -> str:
        return self.system or ""

    def prepare(self) -> None:
        # Prices take a while to load.
        from persona_pipeline.judging import money as money

        super().prepare()
        if self._client is None:
            self._loop.wait(self._connect())

    async def ask(self, request: Request) -> Output:
        if not any(message["role"] == "user" and message["content"].strip() for message in request.messages):
            raise TargetError("invalid_request", "the test's input has no user message to answer")
        response, timing = await self._send(self.body(request.messages), request.timeout)
        return self.read(response).timed(timing)

    async def _connect(self) -> None:
        from persona_pipeline.judging.providers.base import ModelOptions, connect, find_provider

        if self._client is not None:
            return
        try:
            options = ModelOptions(
                provider=find_provider(self._asks or self.provider),
                model=self.model,
                deadline=_LONGEST_SECONDS,
                max_retries=self.max_retries,
                base_url=self.base_url,
                api_key=self.api_key,
                # A server of the suite gets no key from the environment.
                ambient_key=self.base_url is None or self._grants.own,
            )
            self._client = connect(options)
        except ConfigError as error:
            raise self.failure("no_credentials", str(error)) from error

    async def _send(self, body: dict[str, Any], timeout: float) -> tuple[Any, Timing]:
        from persona_pipeline.judging.providers.base import CallError, UnderWay, find_provider, send

        # SDKs know fewer fields than servers.
        sent = {**body, "extra_body": self.parameters} if self.parameters else body
        call = UnderWay(time.monotonic() + timeout)
        try:
            response = await send(
                find_provider(self._asks or self.provider), self._client, sent, call, conversation=True
            )
        except CallError as error:
            # The SDK has already retried; only a later deadline could change the result.
            reason = str(error.reason)
            raise self.failure(reason, error.detail, transient=reason == "timeout") from error
        call.timing.ended = time.monotonic()
        return response, call.timing

    def read(self, response: Any) -> Output:
        """Return the output of a response, with its tokens and its price where that is known.

        Raises ``TargetError``: it is not a response, the model refused, or the answer is empty.
        """
        from persona_pipeline.base.settings import Settings, from_environment
        from persona_pipeline.judging.money import read_usage
        from persona_pipeline.judging.providers.base import find_provider

        answer = response.get(self.answer_key) if isinstance(response, Mapping) else None
        if not isinstance(answer, list):
            raise self.failure("invalid_response", f"it did not send an answer: there is no list {self.answer_key}")
        output = parse_output(response)
        self.require_answer(response, read_turns(response))
        provider = find_provider(self._asks or self.provider)
        used, served = provider.usage_in(response), str(response.get("model") or self.model)
        given = self._grants.prices
        prices = from_environment(Settings).judge_prices if given is None else given
        usage = read_usage(used, served, self.model, prices=prices)
        cached = usage.cache_read_tokens + usage.cache_creation_tokens
        tokens = TokenUsage(usage.input_tokens, usage.output_tokens, cached or None)
        counted = tokens if tokens.input or tokens.output else None
        messages = [{key: message[key] for key in _KEPT if key in message} for message in output.messages]
        return replace(output, messages=messages, token_usage=counted, cost_usd=usage.usd)

    @property
    def answer_key(self) -> str:
        """The key of the list of messages in a response."""
        return "content"

    def require_answer(self, response: Any, turns: Sequence[Turn]) -> None:
        """Raise ``TargetError`` for a failed response, a refusal, or an empty answer."""
        if response.get("status") in ("failed", "cancelled"):
            why = (response.get("error") or {}).get("message") or "it gave no reason"
            raise self.failure("api_error", f"the response {response['status']}: {why}")
        if any(turn.refusal or turn.stop in _REFUSED for turn in turns):
            raise self.failure("refusal", "it refused to answer")
        if not any(turn.text or turn.calls for turn in turns):
            at_limit = f" before its {self.max_tokens} tokens were used up; raise max_tokens"
            reason, more = ("truncated", at_limit) if any(turn.was_cut_off for turn in turns) else ("empty", "")
            raise self.failure(reason, f"it said nothing{more}")

    def close(self) -> None:
        if self._client is not None:
            self._loop.wait(self._client.close())
            self._client = None
        super().close()

    def fingerprint(self) -> Mapping[str, Any]:
        return {**super().fingerprint(), "system_prompt": self.system_prompt()}


class MessagesTarget(ModelTarget):
    """Sends the test's messages to a model with the Messages API. System messages become the system prompt."""

    def body(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        system, turns = conversation(messages, self.system_prompt())
        body: dict[str, Any] = {"model": self.model, "max_tokens": self.max_tokens, "messages": turns}
        return body | ({"system": system} if system else {})


class AnthropicTarget(MessagesTarget):
    """Sends the test's messages to a model of Anthropic, or to a server with the same API."""

    model: Text = Field(DEFAULT_JUDGE_MODEL, description="The model's id.")


def conversation(messages: Sequence[Mapping[str, Any]], system: str) -> tuple[str, list[Any]]:
    """Return the system prompt and the turns of a conversation; adjacent messages with the same role become one turn."""
    systems = [system] if system else []
    turns: list[dict[str, Any]] = []
    for message in messages:
        text = message["content"]
        if message["role"] == "system":
            systems.append(text)
            continue
        role = "assistant" if message["role"] == "assistant" else "user"
        if not text.strip():
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].append({"type": "text", "text": text})
        else:
            turns.append({"role": role, "content": [{"type": "text", "text": text}]})
    return "\n\n".join(systems), turns


class OpenAITarget(ModelTarget):
    """Sends the test's messages to a model with chat completions or the Responses API. Needs the extra ``openai``."""

    api: Literal["chat", "responses"] = Field("chat", description="Which of the two is asked.")

    def body(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        system = [{"role": "system", "content": self.system_prompt()}] if self.system_prompt() else []
        turns = "input" if self.api == "responses" else "messages"
        return {"model": self.model, "max_tokens": self.max_tokens, turns: [*system, *chat_messages(messages)]}

    @property
    def answer_key(self) -> str:
        return "output" if self.api == "responses" else "choices"

    def read(self, response: Any) -> Output:
        output = super().read(response)
        # Without tokens the cost is unknown.
        return output if output.token_usage else replace(output, cost_usd=None)
