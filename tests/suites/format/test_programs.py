"""Command lines of programs that a suite names."""

import pytest

from persona_pipeline.suites.format.files import single_command


@pytest.mark.parametrize(
    ("script", "command"),
    [
        (["python3", "agent.py", "{PROMPT}"], ["python3", "agent.py", "{PROMPT}"]),
        (["sh", "-lc", "python3 'my agent.py'"], ["python3", "my agent.py"]),
        (["/bin/bash", "-c", "python3 agent.py"], ["python3", "agent.py"]),
        (["sh", "-c", "python3 agent.py | tee log"], []),
        (["sh", "-c", "A=1 python3 agent.py"], []),
        (["sh", "-c", "python3 'agent.py"], []),
        (["sh", "run.sh", "x"], ["sh", "run.sh", "x"]),
        (["cat"], ["cat"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_the_command_that_a_shell_runs(script: list[str], command: list[str]) -> None:
    assert single_command(script) == command
