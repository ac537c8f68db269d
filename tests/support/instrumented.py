"""Conversations with model servers on this machine, traced by instrumentations as people install them."""

import itertools
import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "some-model-1"
ENVIRONMENT = {
    "openai-v2": {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"},
    "openai-v2-latest": {
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "span_and_event",
        "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    },
    "anthropic": {"TRACELOOP_TRACE_CONTENT": "true"},
    "openinference-anthropic": {},
    "openinference-openai": {},
}
# What people and models say again and again is a message each time.
ASKED = ("ok", "How are you?", "Tell me more.", "ok", "And then?", "ok")
ANSWERED = ("Sure.", "That is what she said.", "Sure.", "I am not superstitious, but I am a little stitious.")


@dataclass(frozen=True)
class Line:
    """What one party said in a conversation."""

    conversation: str
    speaker: str
    text: str


class QuietServer(ThreadingHTTPServer):
    """A server in a thread that answers what ``answer(path, headers, body)`` returns: a status, headers and a body."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, answer: Callable[[str, dict[str, str], bytes], tuple[int, dict[str, str], bytes]]) -> None:
        self.answer = answer
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> "QuietServer":
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: QuietServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, given, answer = self.server.answer(self.path, headers, body)
        self.send_response(status)
        for name, value in {**given, "content-length": str(len(answer))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


class Model:
    """What a model's server answers; every so often it fails, and is asked again."""

    def __init__(self, seed: int) -> None:
        self._random, self._numbers = random.Random(seed), itertools.count()

    def __call__(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        asked = json.loads(body)
        number = next(self._numbers)
        if self._random.random() < 0.05:
            return 500, {"content-type": "application/json"}, b'{"error": {"message": "not now", "type": "api_error"}}'
        text = (
            f"{self._random.choice(ANSWERED)} {number}"
            if self._random.random() < 0.7
            else self._random.choice(ANSWERED)
        )
        if path.endswith("/messages"):
            answer: dict[str, Any] = {
                "id": f"msg_{number}", "type": "message", "role": "assistant", "model": asked["model"],
                "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "stop_sequence": None,
                "usage": {"input_tokens": 3, "output_tokens": 2},
            }  # fmt: skip
        else:
            message = {"role": "assistant", "content": text}
            answer = {
                "id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1, "model": asked["model"],
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
            }  # fmt: skip
        return 200, {"content-type": "application/json"}, json.dumps(answer).encode()


@contextmanager
def instrumented(name: str, tracer_provider: Any, logger_provider: Any) -> Iterator[None]:
    """Instrument the SDKs for a while as one of ``ENVIRONMENT`` does."""
    from opentelemetry.instrumentation import _semconv

    if name.startswith("openai-v2"):
        from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor as Instrumentor
    elif name == "anthropic":
        from opentelemetry.instrumentation.anthropic import AnthropicInstrumentor as Instrumentor
    elif name == "openinference-anthropic":
        from openinference.instrumentation.anthropic import AnthropicInstrumentor as Instrumentor
    else:
        from openinference.instrumentation.openai import OpenAIInstrumentor as Instrumentor
    # Read once a process, and this one wants to see both conventions.
    _semconv._OpenTelemetrySemanticConventionStability._initialized = False
    instrumentor: Any = Instrumentor()
    instrumentor.instrument(tracer_provider=tracer_provider, logger_provider=logger_provider, skip_dep_check=True)
    try:
        yield
    finally:
        instrumentor.uninstrument()


def client_of(name: str, url: str) -> Callable[[str, Sequence[dict[str, str]]], str]:
    """Return what asks a model, given system instructions and a history, with the SDK that is instrumented."""
    if "anthropic" in name:
        import anthropic

        client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)

        def ask(system: str, history: Sequence[dict[str, str]]) -> str:
            answer = client.messages.create(model=MODEL, max_tokens=100, system=system, messages=history)  # type: ignore[arg-type]
            return answer.content[0].text  # type: ignore[union-attr]

        return ask
    import openai

    other = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)

    def complete(system: str, history: Sequence[dict[str, str]]) -> str:
        given = [{"role": "system", "content": system}, *history]
        return other.chat.completions.create(model=MODEL, messages=given).choices[0].message.content or ""  # type: ignore[arg-type]

    return complete


def talk(
    name: str,
    tracer_provider: Any,
    logger_provider: Any,
    conversations: Sequence[str],
    *,
    turns: int,
    agent: str = "michael",
) -> tuple[list[Line], int]:
    """Hold conversations that an instrumentation traces.

    Returns:
        What was said, in the order of saying, and how many calls the model answered or refused: a span each.
    """
    said: list[Line] = []
    calls = 0
    tracer = tracer_provider.get_tracer("app")
    inference = name.startswith("openinference")
    with QuietServer(Model(len(conversations))) as server, instrumented(name, tracer_provider, logger_provider):
        ask = client_of(name, server.url)
        for conversation in conversations:
            history: list[dict[str, str]] = []
            given = (
                {"openinference.span.kind": "AGENT", "agent.name": agent, "session.id": conversation}
                if inference
                else {
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.agent.name": agent,
                    "gen_ai.conversation.id": conversation,
                }
            )
            for turn in range(turns):
                asked = ASKED[turn % len(ASKED)] if turn % 2 else f"{ASKED[turn % len(ASKED)]} {turn}"
                history.append({"role": "user", "content": asked})
                with tracer.start_as_current_span(f"invoke_agent {agent}", attributes=given) as span:
                    answer = None
                    while answer is None:
                        calls += 1
                        try:
                            answer = ask("You are Michael.", history)
                        except Exception as error:
                            if "500" not in str(error) and "not now" not in str(error):
                                raise
                    if not inference:
                        # Agent frameworks say on the agent's span what its model said.
                        span.set_attribute(
                            "gen_ai.output.messages",
                            json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": answer}]}]),
                        )
                history.append({"role": "assistant", "content": answer})
                said += [Line(conversation, "user", asked), Line(conversation, agent, answer)]
    return said, calls
