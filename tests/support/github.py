"""GitHub's workflows and actions as far as tests read them: loaded without types, their shell steps run as a runner runs them."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support.waiting import PATIENCE

_EXPRESSION = re.compile(r"\$\{\{ *([\w.-]+|toJSON\(inputs\)) *\}\}")


@cache
def load(path: Path) -> dict[str, Any]:
    """Return a workflow or an action, not to be changed. Everything is a string, so that the key ``on`` is no boolean."""
    return yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)


def steps(path: Path) -> list[dict[str, Any]]:
    """Return the steps of a workflow's jobs, or of a composite action."""
    data = load(path)
    return data["runs"]["steps"] if "runs" in data else [step for job in data["jobs"].values() for step in job["steps"]]


def step(path: Path, name: str) -> dict[str, Any]:
    return next(item for item in steps(path) if item.get("name") == name)


@dataclass
class Runner:
    """A runner with its folders below ``folder``. ``workspace`` is the checkout; ``contexts`` answer expressions by their name.

    ``environment``: what the job sets for all of its steps.
    """

    folder: Path
    workspace: Path
    contexts: Mapping[str, str] = field(default_factory=dict)
    event: str = "pull_request"
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.temp = self.folder / "runner-temp"
        self.temp.mkdir(parents=True)
        self.files = {name: self.folder / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for path in self.files.values():
            path.touch()

    @property
    def summary(self) -> str:
        return self.files["GITHUB_STEP_SUMMARY"].read_text(encoding="utf-8")

    def run(self, action: Path, name: str, path: str = "", **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run a shell step of an action with these inputs and the defaults of the others.

        Args:
            path: folders that go before the machine's in PATH.

        Raises:
            KeyError: an expression asks for what nothing answers.
        """
        defaults = {f"inputs.{key}": item.get("default", "") for key, item in load(action).get("inputs", {}).items()}
        given = {f"inputs.{key.replace('_', '-')}": value for key, value in inputs.items()}
        runner = {"runner.temp": str(self.temp), "github.workspace": str(self.workspace)}
        known = {**defaults, **runner, "github.action_path": str(action.parent), **self.contexts, **given}
        told = {key.partition(".")[2]: value for key, value in known.items() if key.startswith("inputs.")}
        known["toJSON(inputs)"] = json.dumps(told)
        found = step(action, name)
        environment = {
            key: _EXPRESSION.sub(lambda match: known[match[1]], value) for key, value in found.get("env", {}).items()
        }
        own = {
            "PATH": os.pathsep.join(filter(None, (path, os.environ["PATH"]))),
            "HOME": str(self.folder),
            "GITHUB_EVENT_NAME": self.event,
            "GITHUB_WORKSPACE": str(self.workspace),
            "RUNNER_TEMP": str(self.temp),
            **{key: str(file) for key, file in self.files.items()},
        }
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", found["run"]],
            cwd=self.workspace,
            env={**own, **self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
