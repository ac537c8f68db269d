"""No field of a suite, a targets file or a world reaches a file that is not its own: every field is walked through hostile places.

What is opened is seen by an audit hook, so that a file which is read and not shown counts, too.
"""

import contextlib
import copy
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import get_annotations
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from persona_pipeline.base.documents.yaml import load_document
from persona_pipeline.base.errors import ConfigError, PersonaError
from persona_pipeline.base.files import FileRefusedError, read_regular
from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli.world.checking import check_world
from persona_pipeline.judging.verdict import Unscored
from persona_pipeline.suites import RunOptions, SuiteResult, read_responses, run_suite
from persona_pipeline.suites.answering.base import OutputCache
from persona_pipeline.suites.answering.output import parse_output
from persona_pipeline.suites.format.registry import TYPES, find_type
from persona_pipeline.suites.grading.suite_judge import SuiteJudge
from persona_pipeline.suites.running.opening import SuiteFile, grants_for, load_suite, open_targets, suite_roots
from persona_pipeline.suites.running.suite_run import look_at_suite
from persona_pipeline.suites.targets.registry import TARGETS, find_provider
from persona_pipeline.testing.worlds import write_small_world
from tests.suites.support import ScriptedBackend, ScriptedSuiteJudge
from tests.support.clock import LONG

SECRET = "the-secret-of-somebody-else"
_FORBIDDEN: list[Path] = []
_OPENED: list[str] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not _FORBIDDEN or not isinstance(arguments[0], str | bytes | os.PathLike):
        return
    path = os.path.realpath(os.fsdecode(arguments[0]))
    if f"{path}/".startswith(tuple(f"{place}/" for place in _FORBIDDEN)):
        _OPENED.append(path)


@pytest.fixture(scope="module", autouse=True)
def _hook() -> None:
    sys.addaudithook(_watch)


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Path]:
    """A repository with a world, beside it a folder of somebody else's, and in it links there and things that are no files."""
    root = write_small_world(tmp_path / "repository")
    (root / ".git").mkdir()
    outside = tmp_path / "outside"
    write_small_world(outside / "world")
    persona = outside / "world" / "personas" / "ann.yaml"
    persona.write_text(persona.read_text("utf-8") + f"# {SECRET}\n", "utf-8")
    rows = [{"id": "t", "input": SECRET, "criteria": SECRET, "output": SECRET}]
    (outside / "rows.json").write_text(json.dumps({"t": SECRET, "hidden": SECRET}), "utf-8")
    (outside / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (outside / "rows.yaml").write_text(yaml.safe_dump(rows), "utf-8")
    (outside / "rows.csv").write_text(f"id,input\nt,{SECRET}\n", "utf-8")
    (outside / "prompt.md").write_text(f"{SECRET} {{{{ answer }}}}", "utf-8")
    for name in ("rows.json", "rows.jsonl", "rows.yaml", "rows.csv", "prompt.md", "world"):
        (root / f"link-{name}").symlink_to(outside / name)
    (root / "folder").symlink_to(outside, target_is_directory=True)
    for name in ("pipe.json", "pipe.jsonl", "pipe.md", "pipe.yaml"):
        os.mkfifo(root / name)

    def too_long(*_: object) -> None:
        raise AssertionError("something waits for what never comes")

    # A named pipe that is opened would be waited for.
    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(int(LONG))
    _FORBIDDEN[:] = [
        outside.resolve(),
        Path("/proc/self/environ").parent.resolve(),
        Path("/dev/zero"),
        Path("/dev/null"),
    ]
    _OPENED.clear()
    try:
        yield root
    finally:
        _FORBIDDEN.clear()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def places(root: Path) -> list[str]:
    outside = root.parent / "outside"
    return [
        *(f"{outside}/rows.json", f"{outside}/rows.csv", f"file://{outside}/rows.yaml", f"{outside}/world"),
        *(
            "../../outside/prompt.md",
            "../outside/rows.json",
            "../link-rows.jsonl",
            "../link-prompt.md",
            "../link-world",
        ),
        *(
            "link-rows.json",
            "link-world",
            "../folder/rows.yaml",
            "folder/rows.json",
            "../pipe.md",
            "../pipe.jsonl",
            "pipe.json",
        ),
        *("/proc/self/environ", "/proc/self/pagemap", "/dev/zero"),
    ]


# What a type needs beside the field that is walked.
_ASSERTS: dict[str, dict[str, Any]] = {
    "contains": {"value": "a"},
    "regex": {"value": "a"},
    "equals": {"value": "a"},
    "rubrics": {"criteria": [{"id": "c", "outcome": "good", "weight": 1}]},
    "code_judge": {"script": ["true"]},
    "tool_trajectory": {"mode": "any_order", "minimums": {"a": 1}},
    "field_accuracy": {"fields": [{"path": "a", "match": "exact"}]},
    "composite": {"evaluators": [{"type": "contains", "value": "a"}], "aggregator": {"type": "weighted_average"}},
    "pairwise": {"responses": "own.json"},
    "execution_metrics": {"max_tool_calls": 3},
    "latency": {"threshold": 9},
    "cost": {"budget": 9},
    "token_usage": {"max_total": 9},
    "propositions": {"agent": "ann", "dimension": "adherence"},
    "persona_drift": {"agent": "ann"},
    "fades": {"agent": "ann", "half_life_at_least": 1},
    "voice": {"agent": "ann"},
}
_TARGETS: dict[str, dict[str, Any]] = {
    "cli": {"command": ["true"]},
    "python": {"function": "nothing:here"},
    "http": {"url": "http://127.0.0.1:9/"},
    "openai": {"model": "m", "base_url": "http://127.0.0.1:9/"},
    "anthropic": {"base_url": "http://127.0.0.1:9/"},
    "bedrock": {"model": "m", "base_url": "http://127.0.0.1:9/"},
    "persona": {"agent": "ann"},
    "replay": {"path": "own.json"},
    "claude-agent-sdk": {},
}


_PLAIN = ("name", "type", "weight", "required", "negate")


# What leads out, what is a link and what is a pipe: where a field takes a list or a program, too. Every place is tried as a text.
_IN_EVERY_SHAPE = ("../outside/rows.json", "link-rows.json", "../pipe.md", "/proc/self/environ")


def shapes(place: str) -> list[Any]:
    return [place, [place], {"script": [place]}] if place in _IN_EVERY_SHAPE else [place]


def judge() -> SuiteJudge:
    return SuiteJudge(ScriptedSuiteJudge(ScriptedBackend(lambda question: Unscored.UNRECORDED)))


def told(root: Path, suite: Mapping[str, Any], targets: list[Any] | None = None) -> str:
    """Return all that a suite of a stranger brings out: problems, results, versions. JSON is YAML, and written sooner."""
    path = root / "suites" / "evil.eval.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(suite), "utf-8")
    said = []
    settings = get_settings()
    answers = None if targets is not None else read_responses({"t": "a"})
    opened = None
    if targets is not None:
        (root / "targets.yaml").write_text(json.dumps({"targets": targets}), "utf-8")
    asking = judge()
    try:
        loaded = load_suite(path, suite_roots(path, settings))
        opened = open_targets(path, None, settings) if targets is not None else None
        options = RunOptions(world_root=lambda: root, settings=settings)
        result: SuiteResult = run_suite(loaded, targets=opened, responses=answers, judge=asking, options=options)
        said.append(json.dumps(result.to_dict(), default=str))
    except PersonaError as error:
        said.append(str(error))
    finally:
        asking.close()
        if opened is not None:
            opened.close()
    with contextlib.suppress(PersonaError):
        # What a sensor takes the digest of.
        said.append(look_at_suite(root, SuiteFile(("evil",), "evil.eval.yaml"), settings)[0])
    return "\n".join(said)


def fields_to_walk(kinds: Iterable[str], find: Callable[[str], type[BaseModel]]) -> list[tuple[str, str]]:
    """Return every field with a kind that has it: one that kinds share by their base is read there, and walked once."""
    first = dict[tuple[type, str], tuple[str, str]]()
    for kind in kinds:
        for name in find(kind).model_fields:
            declared = next(base for base in find(kind).__mro__ if name in get_annotations(base))
            first.setdefault((declared, name), (kind, name))
    return list(first.values())


def checked(root: Path, suite: Mapping[str, Any], what: str, targets: list[Any] | None = None) -> None:
    out = told(root, suite, targets)
    assert SECRET not in out, what
    assert not _OPENED, f"{what}: opened {_OPENED[:3]}"


def test_every_kind_is_walked() -> None:
    built_in = {name for name in TYPES.names() if (find_type(name).__module__.startswith("persona_pipeline."))}
    assert built_in <= {*_ASSERTS, "is_json", "llm_judge", "agent_judge"}
    # Those of one protocol are one class.
    providers = {find_provider(name) for name in TARGETS.names()}
    assert {kind for kind in providers if kind.__module__.startswith("persona_pipeline.")} <= {
        find_provider(name) for name in (*_TARGETS, "mock")
    }


@pytest.mark.parametrize(
    ("kind", "name"), fields_to_walk([*_ASSERTS, "is_json", "llm_judge", "agent_judge"], find_type)
)
def test_no_field_of_an_assert_reaches_beyond_the_repository(repository: Path, kind: str, name: str) -> None:
    (repository / "suites").mkdir(exist_ok=True)
    (repository / "suites" / "own.json").write_text('{"t": "b"}', "utf-8")
    base = {"type": kind, **_ASSERTS.get(kind, {})}
    tried = [base]
    if name not in _PLAIN:
        field = find_type(kind).model_fields[name].alias or name
        tried += [{**base, field: shape} for place in places(repository) for shape in shapes(place)]
    for item in tried:
        suite = {"tests": [{"id": "t", "input": "hi", "criteria": "c", "assert": [item]}]}
        checked(repository, suite, f"{kind}.{name}: {item}")


@pytest.mark.parametrize(("kind", "name"), fields_to_walk([*_TARGETS, "mock"], find_provider))
def test_no_field_of_a_target_reaches_beyond_the_repository(repository: Path, kind: str, name: str) -> None:
    (repository / "own.json").write_text('{"t": "a"}', "utf-8")
    suite = {
        "execution": {"target": "x"},
        "tests": [{"id": "t", "input": "hi", "assert": [{"type": "contains", "value": "a"}]}],
    }
    base = {"name": "x", "provider": kind, **_TARGETS.get(kind, {})}
    if name in ("name", "provider"):
        return
    for place in places(repository):
        for shape in shapes(place):
            checked(repository, suite, f"{kind}.{name}: {shape}", [{**base, name: shape}])


_SUITE: dict[str, Any] = {
    "name": "a",
    "description": "d",
    "execution": {"cache": True, "cache_path": "kept", "target": "x"},
    "workspace": {"template": "own"},
    "tests": [{"id": "t", "input": "hi", "criteria": "c", "assert": [{"type": "contains", "value": "a"}]}],
}
_PATHS: list[tuple[Any, ...]] = [
    *(
        (name,)
        for name in ("tests", "eval_cases", "input", "dataset", "target", "evaluator", "requires", "license", "assert")
    ),
    *(("execution", name) for name in ("target", "targets", "cache_path", "evaluators")),
    *(("workspace", name) for name in ("template", "setup", "before_all", "after_each")),
    ("workspace", "setup", "cwd"),
    *(
        ("tests", 0, name)
        for name in (
            *("input", "expected_output", "criteria", "assert", "workspace", "conversation_id", "rubrics"),
            *("turns", "user", "each_turn"),
        )
    ),
    ("tests", 0, "workspace", "template"),
    ("tests", 0, "metadata", "file"),
    ("tests", 0, "input", 0, "content", 0, "value"),
    ("tests", 0, "turns", 0, "user"),
    *(("tests", 0, "user", name) for name in ("target", "agent", "goal")),
    ("tests", 1),
]


@pytest.mark.parametrize("keys", _PATHS, ids=lambda keys: ".".join(map(str, keys)))
def test_no_field_of_a_suite_reaches_beyond_the_repository(repository: Path, keys: tuple[Any, ...]) -> None:
    (repository / "suites" / "own").mkdir(parents=True)
    outside = repository.parent / "outside"
    before = {path: path.stat().st_mtime_ns for path in outside.rglob("*")}
    for place in places(repository):
        for shape in [*shapes(place), f"file://{place}"]:
            suite = copy.deepcopy(_SUITE)
            if keys[:2] == ("tests", 0) and keys[2:4] == ("input", 0):
                suite["tests"][0]["input"] = [{"role": "user", "content": [{"type": "file", "value": place}]}]
            elif keys[2:4] == ("turns", 0):
                said = [{"role": "user", "content": [{"type": "file", "value": place}]}]
                suite["tests"][0]["turns"] = [{"user": said}]
            elif keys[2:3] == ("user",) and len(keys) == 4:
                suite["tests"][0]["user"] = {"target": "x", "goal": "g", "turns": 1, keys[3]: shape}
            elif keys == ("tests", 1):
                suite["tests"].append(shape)
            else:
                at = suite
                for key in keys[:-1]:
                    at = at[key] if isinstance(key, int) else at.setdefault(key, {})
                at[keys[-1]] = shape
            checked(repository, suite, f"{keys}: {shape}", [{"name": "x", "provider": "mock", "response": "a"}])
    assert {path: path.stat().st_mtime_ns for path in outside.rglob("*")} == before, "written to"


@pytest.mark.parametrize("place", ["targets.yaml", ".agentv/targets.yaml"])
def test_a_targets_file_reached_by_a_link_in_the_repository_is_not_the_users_own(repository: Path, place: str) -> None:
    elsewhere = repository.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "targets.yaml").write_text("targets: [{name: x, provider: mock}]", "utf-8")
    linked = repository / Path(place).parts[0]
    linked.symlink_to(elsewhere if linked.name == ".agentv" else elsewhere / "targets.yaml")
    suite = repository / "suites" / "a.eval.yaml"
    assert not grants_for(repository / place, suite, get_settings()).own
    assert grants_for(elsewhere / "targets.yaml", suite, get_settings()).own
    named = repository / ".." / "elsewhere" / "targets.yaml"
    assert grants_for(named, suite, get_settings()).own


def test_a_suite_that_is_a_link_out_of_its_repository_is_refused(repository: Path) -> None:
    (repository / "suites").mkdir(exist_ok=True)
    linked = repository / "suites" / "a.eval.yaml"
    linked.symlink_to(repository.parent / "outside" / "rows.yaml")
    with pytest.raises(ConfigError, match="lies outside"):
        load_suite(linked, suite_roots(linked, get_settings()))
    assert not _OPENED


def test_answers_kept_by_a_suite_are_neither_read_nor_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "ab").symlink_to(tmp_path / "outside")
    (tmp_path / "outside" / "abc.json").write_text(json.dumps({"output": SECRET}), "utf-8")
    kept = OutputCache(tmp_path / "kept")
    assert kept.get("abc") is None
    kept.put("abd", parse_output("a"))
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["abc.json"]


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "inside").mkdir()
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "file")
    for place in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError):
            read_regular(place)
    with pytest.raises(OSError, match="larger than"):
        read_regular("/proc/self/maps", 10)
    with pytest.raises(FileRefusedError):
        read_regular(tmp_path / "inside" / "link", roots=[tmp_path / "inside"])
    assert read_regular(tmp_path / "inside" / "link", 5, [tmp_path]) == b"12345"
    with pytest.raises(ConfigError, match="is not a regular file"):
        load_document(tmp_path / "pipe")


@pytest.mark.parametrize(
    "to",
    ["pipe.json", "/dev/zero", "../outside/world/personas/ann.yaml"],
)
@pytest.mark.parametrize(
    "name",
    [
        "personas/zoe.yaml",
        "messages/zoe.jsonl",
        "recordings/ann/a.jsonl",
        "baselines/zoe.json",
        "suites/z.eval.yaml",
        "interviews/zoe.yaml",
        "baselines/interviews/zoe.json",
    ],
)
def test_a_link_out_of_a_world_is_named_by_validate(repository: Path, name: str, to: str) -> None:
    place = repository / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(to if to.startswith("/") else repository / to)
    _FORBIDDEN.clear()
    problems = [str(problem) for problem in check_world(repository).problems]
    assert any(name in problem for problem in problems) or to == "pipe.json", problems
