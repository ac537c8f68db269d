"""Whatever a file holds: no importer crashes, and every line is a message, a named problem, or counted as none."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.importing import Importer, ReadOptions, Skipped, Source
from persona_pipeline.importing.platforms import overlap
from persona_pipeline.importing.run import IMPORTERS, find_importer, importer_of
from persona_pipeline.world.messages.files import Row, parse_time
from tests.importing.samples import SAMPLES

KEYS = tuple(
    "id messages role content name text type input output inputs outputs timestamp startTime start_time traceId run_type mes "  # noqa: SIM905
    "is_user send_date chat_metadata ts user subtype edited attachments metadata observations generations choices kwargs lc "
    "data created".split()
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    ["", "user", "hi", "2026-03-01T10:00:00Z", "1772352000.000100", "message", "llm", "{}", "[[1]]", "\ud800", "\x00", "GENERATION"]
)  # fmt: skip
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=25,
)
OPTIONS = ReadOptions(starting=parse_time("2026-03-01T09:00:00Z"))


def read(importer: Importer, source: Source) -> list[Row | Skipped]:
    found = [item for file in importer.files(source) for item in importer.rows(file, OPTIONS)]
    for item in found:
        assert item.line >= 1
        assert isinstance(item, Skipped) or str(item.found)
    return found


def written(folder: Path, name: str, lines: list[Any], *, array: bool) -> Source:
    """Write values as a file of a format, one a line."""
    path = folder / ("general/2026-03-01.json" if name == "slack" else "file.jsonl")
    path.parent.mkdir(exist_ok=True)
    rows = [*map(json.dumps, lines)]
    path.write_text("[" + ",\n".join(rows) + "]" if array or name == "slack" else "\n".join(rows), encoding="utf-8")
    return Source(folder, "export") if name == "slack" else Source(path, "file.jsonl")


@pytest.mark.parametrize("name", IMPORTERS.built_in)
@given(
    lines=st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=8) | JSON, min_size=2, max_size=4),
    array=st.booleans(),
)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_line_is_accounted_for(name: str, lines: list[Any], array: bool, tmp_path: Path) -> None:
    source = written(tmp_path, name, lines, array=array and name != "messages")
    try:
        found = read(find_importer(name), source)
    except ConfigError as error:
        # Lines that do not begin as JSON make it a file of CSV.
        assert name in ("messages", "table") or "[" not in source.beginning[:1], error
        return
    if source.beginning.lstrip()[:1] in ("{", "["):
        assert {item.line for item in found} == set(range(1, len(lines) + 1)), (lines, array, found)


@pytest.mark.parametrize("name", SAMPLES)
@given(cut=st.integers(0, 3000), noise=st.binary(max_size=12))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_no_crash(name: str, cut: int, noise: bytes, tmp_path: Path) -> None:
    path = SAMPLES[name](tmp_path, 5)
    damaged = path / "general" / "2026-03-01.json" if path.is_dir() else path
    data = damaged.read_bytes()
    at = cut % (len(data) + 1)
    damaged.write_bytes(data[:at] + noise + data[at + len(noise) // 2 :])
    try:
        read(importer_of(Source(path, "it"), name), Source(path, "it"))
    except ConfigError as error:
        assert str(error).startswith("it"), error


@given(st.lists(st.sampled_from("ab"), max_size=12), st.lists(st.sampled_from("ab"), max_size=12))
def test_the_overlap_is_the_longest(known: list[str], told: list[str]) -> None:
    longest = max(n for n in range(min(len(known), len(told)) + 1) if n == 0 or known[-n:] == told[:n])
    assert overlap([("r", text) for text in known], [("r", text) for text in told]) == longest
