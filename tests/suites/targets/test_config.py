from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.running.opening import find_targets_file, load_targets
from tests.suites.support import write


def opened(folder: Path, text: str, name: str = "a") -> Any:
    write(folder, {"targets.yaml": text})
    return load_targets(folder / "targets.yaml").open(name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\n", "targets.yaml:1:1: must be a mapping with targets, a list"),
        ("targets: [{name: a}]\n", "targets.yaml:1:11: target 'a': provider None is unknown; known: mock, cli"),
        ("targets: [{name: a, provider: mok}]\n", "provider 'mok' is unknown; did you mean 'mock'?"),
        ("targets: [{provider: mock}]\n", "targets[0] must be a mapping with name and provider"),
        ("targets: [{name: a, provider: mock}, {name: a, provider: mock}]\n", "target 'a' is there twice"),
        ("targets: [{name: a, provider: mock}]\nextra: 1\n", "targets.yaml:2:1: unknown key 'extra'"),
        (
            "targets: [{name: a, provider: mock, respone: x}]\n",
            "target 'a': unknown key 'respone'; did you mean 'response'?",
        ),
        ("targets: [{name: a, provider: mock, workers: 0}]\n", "workers: must be >= 1, not 0"),
        ("targets: [{name: a, provider: cli}]\n", "command is required"),
        ("targets: [{name: a, provider: cli, command: 'echo {PROMT}'}]\n", "command: {PROMT} is not a placeholder"),
        (
            "targets:\n  - name: a\n    provider: cli\n    command_template: echo {PROMT}\n",
            "targets.yaml:4:23: target 'a': command_template: {PROMT} is not a placeholder",
        ),
        ("targets: [{name: a, provider: cli, command: 'a | b'}]\n", "'|' would need a shell"),
        ('targets: [{name: a, provider: cli, command: "a \'b"}]\n', "cannot be split"),
        ("targets: [{name: a, provider: replay, path: none.json}]\n", "none.json: cannot be read"),
        (
            "targets: [{name: a, provider: persona, agent: nobody, root: .}]\n",
            "target 'a': agent 'nobody' has no persona file",
        ),
        (
            "targets: [{name: a, provider: anthropic, api_key: '${{ NO_SUCH_KEY }}'}]\n",
            "environment variable NO_SUCH_KEY is not set",
        ),
    ],
)
def test_mistakes(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        opened(tmp_path, text)
    assert said in str(raised.value)


def test_an_unknown_name_is_told_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no target 'mok'.*did you mean 'mock'.*known: mock, b"):
        opened(tmp_path, "targets: [{name: mock, provider: mock}, {name: b, provider: mock}]\n", "mok")


def test_a_target_nobody_asks_for_needs_no_variables(tmp_path: Path) -> None:
    text = "targets: [{name: a, provider: mock}, {name: b, provider: anthropic, api_key: '${{ NO_SUCH_KEY }}'}]\n"
    assert opened(tmp_path, text).name == "a"


def test_variables_come_from_the_environment_then_from_env_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        tmp_path,
        {".git/HEAD": "", ".env": "A=top\nB='top b'\nC=top # note\n# D=x\n", "suites/.env": "export A=near\nD=file\n"},
    )
    monkeypatch.setenv("D", "process")
    response = "${{ A }} ${{B}} ${{ C }} ${{ D }} ${A}"
    found = opened(tmp_path / "suites", f"targets: [{{name: a, provider: mock, response: '{response}'}}]\n")
    assert found.response == "near top b top process ${A}"


def test_a_value_that_looks_like_a_reference_is_not_expanded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A", "${{ HOME }}")
    assert opened(tmp_path, "targets: [{name: a, provider: mock, response: '${{ A }}'}]\n").response == "${{ HOME }}"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (["suites/targets.yaml", "targets.yaml"], "suites/targets.yaml"),
        (["suites/.agentv/targets.yml"], "suites/.agentv/targets.yml"),
        (["targets.yml"], "targets.yml"),
        ([], None),
    ],
)
def test_the_nearest_file_up_to_the_repositorys_top(tmp_path: Path, files: list[str], found: str | None) -> None:
    write(tmp_path, {"targets.yaml": "", **{f"project/{name}": "" for name in [".git/HEAD", "suites/s.yaml", *files]}})
    place = find_targets_file(tmp_path / "project/suites/s.yaml")
    assert place == (None if found is None else tmp_path / "project" / found)


def test_a_key_never_shows(tmp_path: Path) -> None:
    found = opened(tmp_path, "targets: [{name: a, provider: anthropic, api_key: canary-key}]\n")
    assert "canary-key" not in repr(found) + str(found.fingerprint())
