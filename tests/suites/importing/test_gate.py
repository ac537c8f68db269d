"""The one gate: nothing from outside the eval file's repository comes into what is written, whichever key names it."""

import ast
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.importing import findings
from persona_pipeline.suites.importing.config import ImportedSuite, import_file
from persona_pipeline.suites.importing.findings import AGENTV, PROMPTFOO
from tests.suites.support import write

SECRET = "sk-of-the-user-1234"
ASSERT: dict[str, Any] = {"type": "contains", "value": "a"}
# A file of each tool with a path at every key that takes one.
STRANGERS: dict[str, dict[str, Any]] = {
    PROMPTFOO: yaml.safe_load("""
prompts: [p, 'file://P', {path: 'file://P', label: l}]
providers: [echo, 'file://P', {id: 'exec:run', config: {basePath: P}}, 'python:P.py', 'file://P.py']
defaultTest: file://P
scenarios: ['file://P']
tests:
  - file://P
  - {path: P}
  - {vars: 'file://P', assert: &one [{type: contains, value: a}]}
  - vars: {a: 'file://P'}
    assert:
      - {type: contains, value: 'file://P'}
      - {type: is-json, value: 'file://P'}
      - {type: llm-rubric, value: v, rubricPrompt: 'file://P'}
      - {type: llm-rubric, value: 'file://P'}
      - {type: script, command: [run], cwd: P}
      - {type: contains, value: a}
  - {provider: 'file://P', assert: *one}
"""),
    AGENTV: yaml.safe_load("""
prompts: [p, 'file://P']
target: file://P
default_test: file://P
workspace: {template: P, setup: {script: [make], cwd: P}}
imports: {tests: [P]}
tests:
  - file://P
  - {id: files, input: i, input_files: [P], criteria: c}
  - {id: parts, input: [{role: user, content: [{type: file, value: P}]}], criteria: c}
  - {id: space, input: i, criteria: c, workspace: 'file://P'}
  - {id: vars, vars: {input: 'file://P'}, assert: [a, {type: script, command: [run], cwd: P}]}
  - {id: judged, input: i, assert: [{type: llm-grader, prompt: 'file://P'}, {type: contains, value: a}]}
"""),
}
ENDINGS = ("txt", "yaml", "json", "csv", "jsonl", "md", "py", "")
WAYS = ("absolute", "above", "linked", "linked folder", "globbed", "globbed above", "environment", "from the top")


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each text that names the path P."""
    if isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(one, (*place, key))
    elif isinstance(value, str) and value.replace("file://", "").replace("python:", "").removesuffix(".py") == "P":
        yield place


def spelled(folder: Path, way: str, ending: str) -> str:
    name = f"secret.{ending}" if ending else "secret"
    outside = folder / "outside" / name
    return {
        "absolute": str(outside),
        "above": f"../outside/{name}",
        "linked": f"link-{name}",
        "linked folder": f"folder/{name}",
        "globbed": f"{folder}/outside/*.{ending or '*'}",
        "globbed above": f"../out*/{name}",
        "environment": "/proc/self/environ",
        "from the top": f"/../outside/{name}",
    }[way]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with links that lead out of it, and files beside it that hold a secret in every kind."""
    folder = tmp_path_factory.mktemp("stranger")
    kinds = {
        "yaml": f"[{{id: '{SECRET}', vars: {{a: '{SECRET}'}}, assert: [{{type: contains, value: '{SECRET}'}}]}}]",
        "csv": f"a,__expected\n{SECRET},contains:{SECRET}\n",
    }
    kinds["json"] = kinds["jsonl"] = f'[{{"role": "user", "content": "{SECRET}", "vars": {{"a": "{SECRET}"}}}}]'
    for ending in ENDINGS:
        name = f"secret.{ending}" if ending else "secret"
        write(folder, {f"outside/{name}": kinds.get(ending, SECRET)})
        (folder / "repository").mkdir(exist_ok=True)
        (folder / "repository" / f"link-{name}").symlink_to(folder / "outside" / name)
    (folder / "repository" / "folder").symlink_to(folder / "outside")
    (folder / "repository" / ".git").mkdir()
    return folder


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("origin", STRANGERS)
def test_a_path_that_leads_outside_is_named_and_nothing_of_it_is_written(
    places: Path, monkeypatch: pytest.MonkeyPatch, origin: str, way: str
) -> None:
    monkeypatch.setenv("STRANGERS_KEY", SECRET)
    for place in leaves(STRANGERS[origin]):
        data = copy.deepcopy(STRANGERS[origin])
        for other in leaves(STRANGERS[origin]):
            part: Any = data
            for step in other[:-1]:
                part = part[step]
            path = spelled(places, way, "csv" if place[-1] == "path" else "yaml") if other == place else "here.txt"
            part[other[-1]] = part[other[-1]].replace("P", path, 1)
        write(places / "repository", {"eval.yaml": json.dumps(data), "here.txt": "h"})
        try:
            made: Any = import_file(places / "repository" / "eval.yaml", places / "repository" / "out", origin)
            # Names are made of what the file says; paths and texts are not.
            tests = [{k: v for k, v in test.items() if k not in ("id", "execution")} for test in made.suite["tests"]]
            targets = [
                {k: v for k, v in one.items() if k != "name"} for one in (made.targets or {"targets": []})["targets"]
            ]
            written = json.dumps({**made.suite, "tests": tests, "targets": targets, "execution": {}}, default=str)
            named = [finding.message for finding in made.findings]
        except ConfigError as error:
            written, named = "", [problem.message for problem in error.problems]
        assert SECRET not in written, place
        assert not any(SECRET in message for message in named), place
        assert not any(name in written for name in ("outside", "link-", "folder/", "environ")), (place, written)
        assert any(sign in one for one in named for sign in ("outside", "secret", "environ")), (place, named)


def test_only_the_gate_opens_files() -> None:
    """Whatever the other modules hold is text or a ``FileReference``: none of them makes a path or opens one."""
    folder = Path(findings.__file__).parent
    found = []
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            if name in {"open", "Path", "read_text", "read_bytes", "is_file", "is_dir", "exists", "glob", "iterdir"}:
                found.append((path.stem, name))
    # The user's own arguments of an import, and data of the package.
    assert {stem for stem, _ in found} <= {"findings", "config", "computed"}
    assert {name for stem, name in found if stem == "computed"} == {"Path", "read_text"}


def test_a_link_as_the_eval_file_is_not_followed_out(tmp_path: Path) -> None:
    write(tmp_path, {"outside/secret.yaml": f"tests: [{{vars: {{a: {SECRET}}}}}]", "repository/.git/HEAD": ""})
    (tmp_path / "repository" / "promptfooconfig.yaml").symlink_to(tmp_path / "outside" / "secret.yaml")
    with pytest.raises(ConfigError, match="lies outside"):
        import_file(tmp_path / "repository" / "promptfooconfig.yaml", tmp_path / "repository")


def test_paths_inside_the_repository_are_followed(tmp_path: Path) -> None:
    data = {
        "prompts": ["file://../prompts/*.txt"],
        "tests": [{"vars": {"a": "file://../data.txt"}, "assert": [ASSERT]}],
    }
    write(
        tmp_path,
        {
            ".git/HEAD": "",
            "evals/promptfooconfig.yaml": yaml.safe_dump(data),
            "prompts/p.txt": "Say {{ a }}",
            "data.txt": "x",
        },
    )
    made = import_file(tmp_path / "evals" / "promptfooconfig.yaml", tmp_path / "evals")
    assert (made.findings, made.suite["tests"][0]["input"]) == ((), "Say x")


def test_a_path_of_agentv_starts_from_the_top_of_the_repository(tmp_path: Path) -> None:
    data = {"tests": [{"id": "t", "input": "i", "input_files": ["/notes/a.md", "above.md"], "criteria": "c"}]}
    files = {".git/HEAD": "", "evals/deep/a.eval.yaml": yaml.safe_dump(data), "notes/a.md": "n", "evals/above.md": "n"}
    write(tmp_path, files)
    made = import_file(tmp_path / "evals/deep/a.eval.yaml", tmp_path / "evals/deep", AGENTV)
    assert isinstance(made, ImportedSuite)
    paths = [part["value"] for part in made.suite["tests"][0]["input"][0]["content"] if part["type"] == "file"]
    assert (paths, made.findings) == (["../../notes/a.md", "../above.md"], ())
