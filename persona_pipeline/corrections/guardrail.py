"""The gate as a guardrail of LiteLLM's proxy: guidance before an agent's turn, and a check of its answers."""

import logging
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from httpx2 import URL
from litellm import acompletion  # pyright: ignore[reportMissingImports]
from litellm.integrations.custom_guardrail import CustomGuardrail  # pyright: ignore[reportMissingImports]
from litellm.types.utils import EmbeddingResponse, ModelResponse, ModelResponseStream  # pyright: ignore[reportMissingImports]

from persona_pipeline.corrections.configuration import StoredSettings
from persona_pipeline.corrections.gate import ActionGate, gate_backend
from persona_pipeline.corrections.interventions import Interventions
from persona_pipeline.corrections.service.answers import Events, HeldAnswer, Speaker, read_stream, speaker_of
from persona_pipeline.corrections.service.budget import MessageBudget
from persona_pipeline.corrections.service.forms import ENDPOINT, SHAPE_ERRORS, ChatForm, Json, is_plain_model
from persona_pipeline.judging.verdict import Backend
from persona_pipeline.world.world import World

_FORM = ChatForm()
_LOGGER = logging.getLogger(__name__)


class PersonaGate(CustomGuardrail):
    """A guardrail for ``mode: [pre_call, post_call]``, of chat completions; everything else passes.

    Args:
        agents: agents by the name of a model or the alias of a key; an agent's own id needs no entry.
        ask_again: whether the proxy's models may be asked again, as they only write; by default, those without an ``api_base`` and
            those on hosts that are known to serve plain models.
        budget: fields of the ``MessageBudget`` of each message that differ from its defaults.
        world: by default that of ``PERSONA_ROOT``.
        backend: the judge; by default the live one of the environment.
    """

    def __init__(
        self,
        agents: Mapping[str, str] | None = None,
        ask_again: bool | None = None,
        budget: Mapping[str, Any] | None = None,
        world: World | None = None,
        backend: Backend | None = None,
        **told: Any,
    ) -> None:
        super().__init__(**told)
        world = world or World.open()
        world.sync()
        self._ask_again, self._budget = ask_again, MessageBudget(**(budget or {}))
        self._agents = {name: name for name in world.agent_ids()} | dict(agents or {})
        self._gate = ActionGate(world, backend or gate_backend(world.settings))
        self._interventions, self._settings = Interventions(world), StoredSettings(world.store)

    async def async_pre_call_hook(self, user_api_key_dict: Any, cache: Any, data: Json, call_type: str) -> Json:
        """Put guidance for the agent's turn at the end of its instructions."""
        agent_id, channel = self._speaker(user_api_key_dict, data)
        if agent_id is None or call_type not in ("completion", "acompletion"):
            return data
        guidance = await self._interventions.before_turn(agent_id, channel=channel)
        if guidance.block is None:
            return data
        try:
            return _guided(data, guidance.block)
        except SHAPE_ERRORS:
            _LOGGER.warning("a request of %r takes no guidance", agent_id)
            return data

    async def async_post_call_success_hook(self, data: Json, user_api_key_dict: Any, response: Any) -> Any:
        """Return the answer that is sent: this one, or one that was written again."""
        if isinstance(response, EmbeddingResponse):
            return response
        speaker = await self._checked(user_api_key_dict, data, is_read=isinstance(response, ModelResponse))
        if speaker is None:
            return response

        def held(answer: Any) -> HeldAnswer[Any]:
            return HeldAnswer([answer], _FORM.words_of(answer.model_dump()))

        async def ask(written: str, feedback: str, tokens: int | None) -> HeldAnswer[Any]:
            return held(await _asked_again(data, written, feedback, tokens, stream=False))

        return (await speaker.settled(held(response), ask)).pieces[0]

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: Json
    ) -> AsyncGenerator[Any, None]:
        """Yield the events of a stream when its text is checked."""
        speaker = await self._checked(user_api_key_dict, request_data)
        if speaker is None:
            async for event in response:
                yield event
            return
        if not speaker.holds:
            async for event in speaker.passed(_FORM, _events(response)):
                yield event
            return

        async def ask(written: str, feedback: str, tokens: int | None) -> HeldAnswer[Any]:
            again = await _asked_again(request_data, written, feedback, tokens, stream=True)
            return await read_stream(_FORM, _events(again), self._budget.size)

        first = await read_stream(_FORM, _events(response), self._budget.size)
        answer = await speaker.settled(first, ask)
        async for event in answer.all_pieces():
            yield event

    def _speaker(self, key: Any, data: Json) -> tuple[str | None, str | None]:
        """Return the agent that speaks, and its channel."""
        headers = (data.get("proxy_server_request") or {}).get("headers") or {}
        alias = self._agents.get(getattr(key, "key_alias", None) or "")
        agent_id = headers.get("x-persona-agent") or alias or self._agents.get(str(data.get("model")))
        return agent_id, headers.get("x-persona-channel")

    async def _checked(self, key: Any, data: Json, *, is_read: bool = True) -> Speaker | None:
        agent_id, channel = self._speaker(key, data)
        if agent_id is None:
            return None
        if not is_read or "messages" not in data:
            self._gate.bypasses.count(ENDPOINT, agent_id)
            return None
        asked = _body(data)
        plain = _is_plain(data.get("model")) if self._ask_again is None else self._ask_again
        return await speaker_of(agent_id, channel, self._gate, self._settings, _FORM, asked, self._budget, plain=plain)


def _is_plain(model: Any) -> bool:
    """Whether all deployments of a model of the proxy are known to be plain models."""
    from litellm.proxy.proxy_server import llm_router  # pyright: ignore[reportMissingImports]

    found = (
        [item["litellm_params"] for item in (llm_router.get_model_list(model_name=model) or [])] if llm_router else []
    )
    bases = [item.get("api_base") for item in found]
    return bool(found) and all(not base or is_plain_model(URL(base).host) for base in bases)


def _guided(data: Json, guidance: str) -> Json:
    first, *others = data["messages"]
    if first["role"] in ("system", "developer") and isinstance(first["content"], str):
        return data | {"messages": [first | {"content": f"{first['content']}\n\n{guidance}"}, *others]}
    return data | {"messages": [{"role": "system", "content": guidance}, first, *others]}


def _body(data: Json) -> Json:
    """Return the client's request with the proxy's changes."""
    sent = dict((data.get("proxy_server_request") or {}).get("body") or {})
    told = ("model", "messages", "metadata", "tools", "max_tokens", "max_completion_tokens")
    return sent | {name: data[name] for name in told if name in data}


async def _asked_again(data: Json, written: str, feedback: str, tokens: int | None, *, stream: bool) -> Any:
    """Ask the proxy's own models for another answer."""
    from litellm.proxy.proxy_server import llm_router  # pyright: ignore[reportMissingImports]

    # Not through the proxy's guardrails: this one checks the answer.
    request = _FORM.asked_again(_body(data), written, feedback, tokens) | {"stream": stream}
    return await (llm_router.acompletion if llm_router else acompletion)(**request)


async def _events(events: Any) -> Events[Any]:
    async for event in events:
        yield event, event.model_dump() if isinstance(event, ModelResponseStream) else None
