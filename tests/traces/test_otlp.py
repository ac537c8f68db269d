"""What comes over the wire: protobuf and JSON say the same, and nothing is larger than it may be."""

import base64
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from persona_pipeline.importing.run import ImportOptions, import_messages
from persona_pipeline.importing.traces.calls import piece_of
from persona_pipeline.importing.traces.otlp import JSON, PROTOBUF, TooLargeError, UnreadableError, read_request, unpack
from persona_pipeline.testing.worlds import WorldBuilder
from tests.support.spans import agent, chat, event, logs, request, span


def as_json(message: Any) -> dict[str, Any]:
    """Return OTLP's JSON of a message: ids are hexadecimal."""

    def with_hex(value: Any) -> Any:
        if isinstance(value, dict):
            ids = ("traceId", "spanId", "parentSpanId")
            return {key: base64.b64decode(item).hex() if key in ids else with_hex(item) for key, item in value.items()}
        return [with_hex(item) for item in value] if isinstance(value, list) else value

    return with_hex(MessageToDict(message))


SPANS = request(chat(2, ["Hi"], "Yes?", parent=1), agent(1, "ann", "c"), service="shop")
LOGS = logs(
    event(2, "gen_ai.user.message", {"content": "Tea?"}, trace=2),
    event(2, "gen_ai.choice", {"message": {"content": "No."}}, trace=2, at=1),
)


@pytest.mark.parametrize("message", [SPANS, LOGS], ids=["spans", "logs"])
def test_json_and_protobuf_say_the_same(message: Any) -> None:
    logged = message is LOGS
    binary = read_request(message.SerializeToString(), PROTOBUF, logs=logged)
    text = read_request(json.dumps(as_json(message)).encode(), JSON, logs=logged)
    assert list(map(piece_of, binary)) == list(map(piece_of, text))
    assert len(binary) == 2


def test_json_may_have_fields_that_are_not_known_yet() -> None:
    given = as_json(SPANS)
    given["resourceSpans"][0]["entityRefs2"] = [{"x": 1}]
    assert len(read_request(json.dumps(given).encode(), JSON)) == 2


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"\xff\xff\xff", PROTOBUF),
        (b"{", JSON),
        (b"[]", JSON),
        (b'{"resourceSpans": [], "resourceSpans": []}', JSON),
        (b"\xff", JSON),
        (b'{"resourceSpans": 3}', JSON),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "xyz"}]}]}]}', JSON),
        (b"[" * 100_000, JSON),
        (b'{"resourceSpans":' + b'{"a":' * 50_000, JSON),
    ],
)
def test_what_is_no_request_says_so(body: bytes, kind: str) -> None:
    with pytest.raises(UnreadableError):
        read_request(body, kind)


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"text", ""),
        (b"text", "identity"),
        (gzip.compress(b"text", mtime=0), "gzip"),
        (gzip.compress(b"text", mtime=0), " GZIP "),
        (zlib.compress(b"text"), "deflate"),
    ],
)
def test_bodies_are_unpacked(body: bytes, encoding: str) -> None:
    assert unpack(body, encoding, 4) == b"text"
    with pytest.raises(TooLargeError):
        unpack(body, encoding, 3)


def test_a_bomb_is_not_unpacked_beyond_the_limit() -> None:
    bomb = gzip.compress(bytes(20_000_000), 9)
    with pytest.raises(TooLargeError, match="1,000,000"):
        unpack(bomb, "gzip", 1_000_000)


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"text", "gzip"),
        (gzip.compress(b"text", mtime=0)[:-3], "gzip"),
        (gzip.compress(b"text", mtime=0) + b"more", "gzip"),
        (b"text", "zstd"),
    ],
)
def test_what_is_not_packed_as_it_says_is_refused(body: bytes, encoding: str) -> None:
    with pytest.raises(UnreadableError):
        unpack(body, encoding, 1000)


FILES = {
    "lines.jsonl": lambda: "\n".join(json.dumps(as_json(item)) for item in (SPANS, LOGS)).encode(),
    "pretty.json": lambda: json.dumps(as_json(SPANS) | as_json(LOGS), indent=2).encode(),
}
LINES = [
    ("c", "user", "Hi"),
    ("c", "ann", "Yes?"),
    (f"trace-{2:032x}", "user", "Tea?"),
    (f"trace-{2:032x}", "assistant", "No."),
]


@pytest.mark.parametrize("name", FILES)
def test_files_of_traces_are_imported(tmp_path: Path, name: str) -> None:
    world = WorldBuilder(tmp_path / "world").persona("ann", "Ann is dry.").open()
    path = tmp_path / name
    path.write_bytes(FILES[name]())
    for _ in range(2):
        imported = import_messages(world, [path], ImportOptions())
        assert imported.formats == {str(path): "otlp"}
        assert imported.result.problems == []
    assert sorted((m.channel, m.agent_id, m.text) for m in world.messages()) == sorted(LINES)


def test_what_is_wrong_in_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    world = WorldBuilder(tmp_path / "world").persona("ann", "Ann is dry.").open()
    nobody = chat(2, ["Hi"], "Yes?")
    nobody.trace_id = b""
    silent = as_json(request(span(7, {"http.route": "/"})))
    whole, silent_line, odd, last = map(json.dumps, (as_json(SPANS), silent, {"a": 1}, as_json(request(nobody))))
    path = tmp_path / "traces.jsonl"
    path.write_text("\n".join([whole, silent_line, "{broken", odd, last]), encoding="utf-8")
    imported = import_messages(world, [path], ImportOptions())
    assert [problem.line for problem in imported.result.problems] == [3, 4, 5]
    assert imported.skipped == {"spans and events without a message": 1}, "what is refused is named instead"
    assert len(world.messages()) == 2
