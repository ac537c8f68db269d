"""Inputs of other programs as users have them: one folder a case, read by the command line as a user runs it.

``case.toml`` of a case holds:

- ``why``: what went wrong, in a sentence;
- ``run``: the arguments of ``persona-pipeline``, in a copy of the folder that is a world (``persona.yaml``) without agents;
- ``exit``: the exit code, 0 by default;
- ``says``, ``never_says``: texts that the output has, or must not have;
- ``messages``: the messages of the world afterwards, oldest first, each ``[speaker, place, text]``;
- ``files``: by the path of a file that was written, a text in it.
"""

import shlex
import tomllib
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from persona_pipeline.world import World
from tests.support.command_line import in_process

# Cases that need a server: where they are held.
ELSEWHERE = {
    "dagster-job-without-a-partition": "defs/test_evaluate_agent.py::test_a_run_of_no_known_agent_fails_and_says_how_to_name_one",
    "gate-stream-with-content-length": "corrections/test_passing.py::test_an_answer_written_again_comes_with_its_own_headers",
    "judge-answers-in-a-fence": "judging/test_fences.py::test_a_judge_that_talks_around_its_answer_is_understood",
    "judge-reason-half-emoji": "judging/test_recorded.py::test_hostile_text_survives_recording",
}
CASES = sorted((Path(__file__).parent / "cases").glob("*/case.toml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name)
def test_field_case(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = tomllib.loads(path.read_text(encoding="utf-8"))
    root = world_of(path.parent, tmp_path)
    monkeypatch.chdir(root)
    done = in_process(root, monkeypatch, capsys)(*shlex.split(case["run"]))
    output = done.stdout + done.stderr
    assert done.returncode == case.get("exit", 0), output
    for text in case.get("says", ()):
        assert text in output
    for text in case.get("never_says", ()):
        assert text not in output
    for name, text in case.get("files", {}).items():
        assert text in (root / name).read_text(encoding="utf-8")
    if "messages" in case:
        assert messages_of(root) == case["messages"], output


@pytest.mark.parametrize("where", ELSEWHERE.values(), ids=list(ELSEWHERE))
def test_every_other_case_has_its_test(where: str) -> None:
    path, _, name = where.partition("::")
    assert f"def {name}(" in (Path(__file__).parents[1] / path).read_text(encoding="utf-8")


def world_of(case: Path, folder: Path) -> Path:
    """Return a copy of a case's folder as a world without agents, unless the case has a world of its own."""
    root = copytree(case, folder / "world")
    if not (root / "persona.yaml").exists():
        (root / "persona.yaml").write_text("window: 7d\n", encoding="utf-8")
    for name in ("personas", "propositions"):
        (root / name).mkdir(exist_ok=True)
    return root


def messages_of(root: Path) -> list[Any]:
    world = World.open(root)
    try:
        return [[item.agent_id, item.channel or item.recipient, item.text] for item in world.messages()]
    finally:
        world.store.close()
