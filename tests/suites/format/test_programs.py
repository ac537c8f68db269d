"""What a program is made of, as far as the repository shows it."""

import os
from pathlib import Path

import pytest

from persona_pipeline.suites.format.programs import program_sources
from tests.suites.support import write

FILES = {
    "agent.py": "",
    "my_agent/__init__.py": "",
    "my_agent/reply.py": "",
    "run.sh": "",
    "conf.json": "",
    "bin/tool": "",
}


@pytest.mark.parametrize(
    ("script", "seen", "unseen"),
    [
        (["python3", "agent.py"], ["agent.py!"], []),
        (["/usr/bin/python3", "agent.py"], ["agent.py!"], []),
        (["python3", "agent.py", "--config=conf.json"], ["agent.py!", "conf.json"], []),
        (["python3", "agent.py", "{PROMPT}"], ["agent.py!"], []),
        (["python3", "-m", "my_agent.reply"], ["my_agent.py", "my_agent!"], []),
        (["python3", "-m", "json"], ["json.py", "json"], []),
        (["python3", "-m", "no_such_agent"], ["no_such_agent.py", "no_such_agent"], ["the module no_such_agent (not found)"]),
        (["python3", "-c", "print(1)"], [], []),
        (["sh", "-lc", "python3 agent.py | tee /dev/null"], ["agent.py!"], []),
        (["sh", "-lc", "no-such-tool | cat"], [], ["the program no-such-tool (out of sight)"]),
        (["./run.sh"], ["run.sh!"], []),
        (["bin/tool"], ["bin/tool!"], []),
        (["cat"], [], []),
        (["no-such-tool", "conf.json"], ["conf.json"], ["the program no-such-tool (out of sight)"]),
        (["npx", "my-bot"], [], ["what npx runs (out of sight)"]),
        (["uv", "run", "agent.py"], ["agent.py!"], []),
        (["/opt/no/agent"], [], ["/opt/no/agent (not found)"]),
        (["go", "run", "."], ["."], []),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)  # fmt: skip
def test_what_a_program_is_made_of(tmp_path: Path, script: list[str], seen: list[str], unseen: list[str]) -> None:
    write(tmp_path, FILES)
    found = list(program_sources(script, [tmp_path]))
    shown = [
        os.path.relpath(item.path, tmp_path) + ("!" if item.program else "") for item in found if item.path is not None
    ]
    assert (shown, [item.unseen for item in found if item.unseen]) == (seen, unseen)


def test_a_command_of_a_package_is_that_package(tmp_path: Path) -> None:
    found = [item.path for item in program_sources(["persona-pipeline", "x"], [tmp_path])]
    assert Path(__file__).parents[3] / "persona_pipeline" in found
