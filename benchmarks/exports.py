"""What instrumentations that stand in environments of their own export, recorded for tests, or counted in a real collector.

    python -m benchmarks.exports record PRODUCER --in FOLDER [--as NAME] [SCENARIO...]
    python -m benchmarks.exports matrix PRODUCER --in FOLDER [SCENARIO...]

PRODUCER is a program of benchmarks/producers; FOLDER a virtual environment or a folder with node_modules in which that is installed
what it imports. It talks with a model's server on this machine and says what was said. `record` writes what it exported to
tests/traces/recorded/NAME.jsonl, without what tells of this machine, and what was said to NAME.said.json. `matrix` sends it to
`persona-pipeline collect`: as it came, and span by span, twice and in another order. Counted is, by scenario, what was said and
what is stored of either order.
"""

import argparse
import base64
import gzip
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.collect import Collector
from persona_pipeline.testing.worlds import WorldBuilder
from persona_pipeline.world.messages.files import MAX_TEXT
from persona_pipeline.world.world import World
from tests.support.instrumented import QuietServer
from tests.support.otlp_relay import post
from tests.support.serving import serving

HERE = Path(__file__).resolve().parent
RECORDED = HERE.parent / "tests" / "traces" / "recorded"
AGENTS = {"ann": "Ann is dry.", "bob": "Bob purrs."}
HUGE = 1_200_000
# Attributes that tell of this machine, of who wrote the SDK, or of nothing.
_DROPPED = re.compile(
    r"host\..*|process\..*|os\..*|telemetry\..*|server\..*|url\..*|http\..*|net\..*|code\..*|thread\..*|service\.instance\.id"
    r"|.*usage.*|.*token.*|.*headers.*|.*json_?schema.*|llm\.tools\..*|llm\.invocation_parameters|.*tool\.definitions"
)
_CLIPPED = 60
Said = list[tuple[str, str, str]]


class Talker:
    """A model's server for chat completions, streamed or not: it numbers its answers, and asks for the weather when it is asked."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def __call__(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        asked = json.loads(body)
        whole = {"id": f"chatcmpl-{next(self._numbers)}", "created": 1, "model": asked.get("model", "m")}
        message = self._answer(asked, whole["id"])
        finish = "tool_calls" if "tool_calls" in message else "stop"
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        if not asked.get("stream"):
            choice = {"index": 0, "finish_reason": finish, "message": message}
            answer = {**whole, "object": "chat.completion", "choices": [choice], "usage": usage}
            return 200, {"content-type": "application/json"}, json.dumps(answer).encode()
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        if "tool_calls" in message:
            deltas.append({"tool_calls": [{"index": 0, **message["tool_calls"][0]}]})
        else:
            half = len(message["content"]) // 2
            deltas += [{"content": message["content"][:half]}, {"content": message["content"][half:]}]
        chunks = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
        lines = [{"choices": [chunk]} for chunk in (*chunks, {"index": 0, "delta": {}, "finish_reason": finish})]
        lines += [{"choices": [], "usage": usage}]
        sent = [json.dumps({**whole, "object": "chat.completion.chunk", **line}) for line in lines] + ["[DONE]"]
        return 200, {"content-type": "text/event-stream"}, "".join(f"data: {line}\n\n" for line in sent).encode()

    def _answer(self, asked: dict[str, Any], name: str) -> dict[str, Any]:
        last = asked["messages"][-1]
        content = last.get("content") or ""
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        if asked.get("tools") and last["role"] == "user" and "weather" in text:
            function = {"name": asked["tools"][0]["function"]["name"], "arguments": '{"city": "Rome"}'}
            return {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"call-{name}", "type": "function", "function": function}],
            }
        number = name.partition("-")[2]
        return {"role": "assistant", "content": "x" * HUGE if "huge" in text else f"Answer {number}."}


def produced(producer: str, folder: Path, *arguments: str) -> tuple[Said, list[bytes]]:
    """Run a producer, and return what was said and the requests in which it told of it."""
    requests: list[bytes] = []

    async def take(request: Request) -> Response:
        body = await request.body()
        requests.append(gzip.decompress(body) if request.headers.get("content-encoding") == "gzip" else body)
        return Response(b"", media_type="application/x-protobuf")

    path = HERE / "producers" / producer
    python = folder / "bin" / "python"
    with tempfile.TemporaryDirectory() as place, QuietServer(Talker()) as model:
        if not python.exists():
            # Modules are looked for beside the program.
            path = shutil.copy(path, folder / producer)
        app = Starlette(routes=[Route("/v1/traces", take, methods=["POST"])])
        with serving(app) as collect:
            given = {"COLLECT": collect, "MODEL": f"{model.url}/v1", "HOME": place}
            command = [str(python), str(path)] if python.exists() else ["node", str(path)]
            done = subprocess.run(
                [*command, *arguments], env=os.environ | given, stdout=subprocess.PIPE, text=True, check=True
            )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[[")]
    return [(str(channel), speaker, text) for channel, speaker, text in lines[-1]], requests


def record(producer: str, folder: Path, name: str, arguments: Sequence[str]) -> None:
    """Write what a producer exports, and what was said, for tests."""
    said, requests = produced(producer, folder, *arguments)
    RECORDED.mkdir(exist_ok=True)
    lines = [_as_json(body) for body in requests]
    (RECORDED / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (RECORDED / f"{name}.said.json").write_text(json.dumps(said, indent=0) + "\n", encoding="utf-8")
    print(f"{name}: {sum(map(len, lines)):,} characters, {len(said)} lines said")


def _as_json(body: bytes) -> str:
    request = ExportTraceServiceRequest.FromString(body)
    for group in request.resource_spans:
        _keep(group.resource.attributes)
        for span in (span for scope in group.scope_spans for span in scope.spans):
            _keep(span.attributes)
            span.ClearField("events" if any(event.name == "exception" for event in span.events) else "links")
    return re.sub(r'"(traceId|spanId|parentSpanId)": "([^"]*)"', _in_hex, json.dumps(MessageToDict(request)))


def _in_hex(match: re.Match[str]) -> str:
    return f'"{match[1]}": "{base64.b64decode(match[2]).hex()}"'


def _keep(attributes: Any) -> None:
    """Leave out what tells of this machine, and of what a chain hands on all but the beginning: nobody reads it."""
    kept = [pair for pair in attributes if not _DROPPED.fullmatch(pair.key.lower())]
    is_call = any(pair.value.string_value == "LLM" for pair in kept)
    for pair in kept:
        if pair.key == "input.value" or (pair.key == "output.value" and not is_call):
            pair.value.string_value = pair.value.string_value[:_CLIPPED]
    del attributes[:]
    attributes.extend(kept)


def matrix(producer: str, folder: Path, arguments: Sequence[str]) -> None:
    """Print what of each scenario is stored."""
    said, requests = produced(producer, folder, *arguments)
    spans = [
        single for _ in range(2) for body in requests for single in _apart(ExportTraceServiceRequest.FromString(body))
    ]
    random.Random(1).shuffle(spans)
    expected, ordered, shuffled = _by_channel(said), _stored(requests), _stored(spans)
    print(f"{producer} {' '.join(arguments)}: {len(spans) // 2} spans in {len(requests)} requests")
    strange = len(ordered.keys() - expected.keys())
    if strange:
        print(f"  {strange} channels that nobody spoke in")
    for channel in sorted(expected):
        wanted, found, other = expected[channel], ordered[channel], shuffled[channel]
        how = (
            "as it was said"
            if wanted == found == other
            else "in another order"
            if sorted(wanted) == sorted(found)
            else "NOT SO"
        )
        print(f"  {channel[:40]:40} {len(wanted):3} said {len(found):3} stored {len(other):3} in another order: {how}")
        if how == "NOT SO":
            print(f"    said {wanted[:6]}\n    stored {found[:6]}\n    stored of the other order {other[:6]}")


def _apart(request: ExportTraceServiceRequest) -> Iterable[bytes]:
    for group in request.resource_spans:
        for scope in group.scope_spans:
            for span in scope.spans:
                single = ExportTraceServiceRequest()
                made = single.resource_spans.add(resource=group.resource)
                made.scope_spans.add(scope=scope.scope).spans.append(span)
                yield single.SerializeToString()


def _stored(requests: Iterable[bytes]) -> dict[str, list[tuple[str, str]]]:
    with tempfile.TemporaryDirectory() as place:
        builder = WorldBuilder(Path(place))
        for agent, text in AGENTS.items():
            builder.persona(agent, text)
        builder.open().store.close()
        collector = Collector(Path(place))
        for body in requests:
            status = post(f"{collector.url}/v1/traces", body)[0]
            if status != 200:
                print(f"  answered with {status}")
        print("  " + _silent(collector.url))
        collector.process.terminate()
        collector.process.wait()
        world = World.open(Path(place))
        messages = world.messages()
        world.store.close()
    return _by_channel((message.channel or "", message.agent_id, message.text) for message in messages)


def _silent(url: str) -> str:
    import urllib.request

    with urllib.request.urlopen(f"{url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if line.startswith("persona_collect_spans_without_words_total")]
    return (
        "; ".join(line.removeprefix("persona_collect_spans_without_words_total") for line in found)
        or "no span without words"
    )


def _by_channel(said: Iterable[tuple[str, str, str]]) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for channel, speaker, text in said:
        found[channel].append((speaker, text if len(text) < 80 else f"{text[:20]}... ({min(len(text), MAX_TEXT):,})"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "matrix"))
    parser.add_argument("producer")
    parser.add_argument("--in", dest="folder", type=Path, required=True)
    parser.add_argument("--as", dest="name")
    parser.add_argument("arguments", nargs="*")
    given = parser.parse_intermixed_args()
    if given.what == "record":
        record(given.producer, given.folder, given.name or Path(given.producer).stem, given.arguments)
    else:
        matrix(given.producer, given.folder, given.arguments)


if __name__ == "__main__":
    main()
