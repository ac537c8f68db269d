"""What targets that are models have in common: one connection for a run, and failures in words."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field, PrivateAttr, SecretStr

from persona_pipeline.base.calls import BackgroundLoop
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.answering.base import Request, TargetError, TargetFields
from persona_pipeline.suites.answering.output import Output, TokenUsage
from persona_pipeline.suites.format.models import Text

# What one request may take at most, whatever a run asks for: that ends sooner, by its own deadline.
_LONGEST_SECONDS = 3600.0


class ModelTarget(TargetFields):
    """Sends the test's messages to a model, over a provider's SDK. Subclasses say in which words."""

    asks_network: ClassVar[bool] = True
    is_model: ClassVar[bool] = True
    # Whose SDK is used.
    _provider: ClassVar[str]

    model: Text = Field(description="The model's id.")
    max_tokens: int = Field(2048, ge=1, description="For the answer and the thinking before it.")
    system: str | None = Field(None, description="Put before the test's own system messages.")
    api_key: SecretStr | None = Field(None, description="By default that of the environment.")
    max_retries: int = Field(2, ge=0, le=10, description="How often the SDK tries again what can pass.")
    base_url: Text | None = Field(None, description="By default what the environment says, else the provider's own.")

    _loop: BackgroundLoop = PrivateAttr(default_factory=lambda: BackgroundLoop("suite-target"))
    _client: Any = PrivateAttr(None)

    def body(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the request that continues a conversation; without a turn to answer, one without messages."""
        raise NotImplementedError

    def read(self, response: Any, duration_ms: float) -> Output:
        """Return the output of a response."""
        raise NotImplementedError

    def system_prompt(self) -> str:
        """Return what stands before the test's own system messages."""
        return self.system or ""

    def respond(self, request: Request) -> Output:
        self.require_network()
        if not any(message["role"] == "user" and message["content"].strip() for message in request.messages):
            raise TargetError("invalid_request", "the test's input has no user message to answer")
        started = time.monotonic()
        response = self._loop.wait(self._send(self.body(request.messages), request.timeout))
        return self.read(response, round((time.monotonic() - started) * 1000, 3))

    async def _send(self, body: dict[str, Any], timeout: float) -> Any:
        from persona_pipeline.judging.providers.base import (
            CallError,
            Leave,
            ModelOptions,
            connect,
            find_provider,
            send,
        )

        provider = find_provider(self._provider).conversing()
        options = ModelOptions(
            provider=provider,
            model=self.model,
            deadline=_LONGEST_SECONDS,
            max_retries=self.max_retries,
            base_url=self.base_url,
            api_key=self.api_key,
            # Whoever names the server gets no key but the one he names.
            ambient_key=self.base_url is None or self._grants.own,
        )
        try:
            if self._client is None:
                self._client = connect(options)
            return await send(provider, self._client, body, Leave(time.monotonic() + timeout))
        except CallError as error:
            # The SDK has retried what can pass; a test's own deadline is all that another try could change.
            reason = str(error.reason)
            raise TargetError(reason, f"target {self.name!r}: {error.detail}", transient=reason == "timeout") from error
        except ConfigError as error:
            raise TargetError("no_credentials", f"target {self.name!r}: {error}") from error

    def said(
        self,
        response: Mapping[str, Any],
        text: str,
        calls: Sequence[Mapping[str, Any]],
        *,
        refused: bool,
        truncated: bool,
        duration_ms: float,
    ) -> Output:
        """Return the output of a response that says this, with its tokens, cached ones apart, and its price where that is known.

        Raises:
            TargetError: the model refused, or said nothing.
        """
        from persona_pipeline.base.settings import Settings, from_environment
        from persona_pipeline.judging.money import read_usage
        from persona_pipeline.judging.providers.base import find_provider

        if refused:
            raise TargetError("refusal", f"target {self.name!r} refused to answer")
        if not text and not calls:
            raise TargetError("truncated" if truncated else "empty", f"target {self.name!r} said nothing")
        used, served = find_provider(self._provider).usage_in(response), str(response.get("model") or self.model)
        given = self._grants.prices
        prices = from_environment(Settings).judge_prices if given is None else given
        usage = read_usage(used, served, self.model, prices=prices)
        cached = usage.cache_read_tokens + usage.cache_creation_tokens
        tokens = TokenUsage(usage.input_tokens, usage.output_tokens, cached or None)
        message = {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})
        return Output([message], tokens if tokens.input or tokens.output else None, usage.usd, duration_ms)

    def close(self) -> None:
        if self._client is not None:
            self._loop.wait(self._client.close())
            self._client = None
        self._loop.close()

    def fingerprint(self) -> Mapping[str, Any]:
        return self.model_dump(mode="json", exclude={"api_key"}) | {"system_prompt": self.system_prompt()}
