"""``agent_judge``: a judge that reads files of the workspace before it decides.

Each step is one question to the judge, so steps are cached, recorded and paid for like other judgments. The tools only
read.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from persona_pipeline.base.documents.json import object_schema
from persona_pipeline.base.files import open_regular
from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.asserts.llm_judge import Prompted
from persona_pipeline.suites.format.files import ReasonedError
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.format.text import PatternError, compile_pattern, search, stringify
from persona_pipeline.suites.grading.base import Context
from persona_pipeline.suites.grading.judge_questions import (
    FREEFORM,
    RULES,
    Criteria,
    Reply,
    ask_judge,
    checks_asked,
    checks_reply,
    evidence,
    fill_prompt,
    rename_description,
)
from persona_pipeline.suites.grading.results import Grade, UngradedError

MOST_NAMES, MOST_BYTES, MOST_MATCHES = 100, 50_000, 20
_SKIPPED = frozenset((".git", "node_modules", "dist", "build", ".venv", "__pycache__", ".next", "target"))
_MOST_FILES = 20_000
_ACTIONS = ("list_files", "read_file", "search_files")


def _step_schema(result: Mapping[str, Any]) -> dict[str, Any]:
    return object_schema(
        {
            "reasoning": {"type": "string"},
            "action": {"type": "string", "enum": [*_ACTIONS, "finish"]},
            "path": {"type": "string"},
            "pattern": {"type": "string"},
            "result": {"anyOf": [result, {"type": "null"}]},
        }
    )


def _step_problem(data: Any) -> str | None:
    if not isinstance(data, Mapping):
        return f"the reply is not an object: {stringify(data)[:60]}"
    action = data.get("action")
    if action == "finish":
        return None if isinstance(data.get("result"), Mapping) else "a reply that finishes needs a result"
    if action not in _ACTIONS:
        return f"there is no action {action!r}"
    texts = (data.get("path"), data.get("pattern"))
    return None if all(isinstance(text, str) for text in texts) else "path and pattern must be texts"


def look(folder: Path, action: str, path: str, pattern: str) -> dict[str, Any]:
    """Do one read-only action in a folder and return its result. A path outside the folder is refused."""
    root = folder.resolve()
    try:
        place = (root / path.lstrip("/")).resolve()
        if place != root and not place.is_relative_to(root):
            return {"error": f"{path!r} lies outside the workspace"}
        if action == "read_file":
            return _read(place, path)
        if not place.is_dir():
            return {"error": f"{path!r} is no folder"}
        return _list(root, place) if action == "list_files" else _search(root, place, pattern)
    except ReasonedError as error:
        return {"error": str(error)}
    except (OSError, ValueError) as error:
        return {"error": f"{path!r} cannot be used ({type(error).__name__})"}


def _read(place: Path, path: str) -> dict[str, Any]:
    if not place.is_file():
        return {"error": f"{path!r} is no file"}
    with open_regular(place) as stream:
        raw = stream.read(MOST_BYTES + 1)
    if b"\0" in raw:
        return {"error": f"{path!r} is not text"}
    return {"text": raw[:MOST_BYTES].decode("utf-8", "replace"), "cut": len(raw) > MOST_BYTES}


def _list(root: Path, place: Path) -> dict[str, Any]:
    names = sorted(
        f"{item.relative_to(root).as_posix()}{'/' if item.is_dir() else ''}"
        for item in place.iterdir()
        if item.name not in _SKIPPED
    )
    return {"names": names[:MOST_NAMES], "cut": len(names) > MOST_NAMES}


def _search(root: Path, place: Path, pattern: str) -> dict[str, Any]:
    try:
        compile_pattern(pattern)
    except PatternError as error:
        return {"error": str(error)}
    matches: list[dict[str, Any]] = []
    for item in _files(place):
        with open_regular(item, [root]) as stream:
            raw = stream.read(MOST_BYTES)
        if b"\0" in raw:
            continue
        for number, line in enumerate(raw.decode("utf-8", "replace").split("\n"), start=1):
            if search(pattern, line):
                matches.append({"path": item.relative_to(root).as_posix(), "line": number, "text": line[:300]})
                if len(matches) == MOST_MATCHES:
                    return {"matches": matches, "cut": True}
    return {"matches": matches, "cut": False}


def _files(place: Path) -> list[Path]:
    found: list[Path] = []
    for folder, folders, names in os.walk(place):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        paths = [Path(folder, name) for name in names if name not in _SKIPPED]
        found += [path for path in paths if path.is_file() and not path.is_symlink()]
        if len(found) >= _MOST_FILES:
            break
    return sorted(found)


class AgentJudge(Prompted):
    """The score, 0-1, of a judge that may list, read and search the workspace, at most ``max_steps`` times.

    It is an error without a workspace, and if the judge has not decided after its last step.
    """

    needs = ()
    needs_workspace = True

    prompt: str | None = Field(None, description="What to look for: text or a file.")
    max_steps: int = Field(10, ge=1, le=50, description="Most looks into the workspace.")
    temperature: float | None = Field(None, ge=0, le=2, description="Accepted; the judge's models have no temperature.")
    target: str | None = Field(None, description="Accepted; judgments come from the project's judge.")
    criteria: Criteria | None = Field(None, alias="rubrics", description="Criteria to check one by one.")

    @classmethod
    def prepare(cls, data: dict[str, Any], entry: ConfigEntry, reader: Reader) -> dict[str, Any]:
        if data.get("target") is not None:
            reader.warn(entry, "target is not asked; the project's judge judges", "target", key=True)
        rename_description(data, "rubrics", entry, reader)
        return data

    def grade(self, output: Output, context: Context) -> Grade:
        if output.workspace is None:
            raise UngradedError("no_workspace", "agent_judge needs a workspace; give the suite or the test one")
        reply = checks_reply(self.criteria) if self.criteria else FREEFORM
        data = self._seen(Path(output.workspace), evidence(output, context, self._prompt_text), context, reply)
        if problem := reply.problem(data):
            raise UngradedError("invalid_output", problem)
        return reply.grade(data)

    def _seen(self, folder: Path, shown: Mapping[str, Any], context: Context, reply: Reply) -> Mapping[str, Any]:
        """Return the judge's reply after its steps."""
        prompt = self._prompt_text
        step = Reply(reply.rules + RULES["steps"], _step_schema(reply.schema), _step_problem)
        ask = fill_prompt(prompt) if prompt else "Judge whether the work in the workspace meets the goal."
        ask = checks_asked(self.criteria, ask) if self.criteria else ask
        steps: list[dict[str, Any]] = []
        for left in range(self.max_steps, -1, -1):
            data = ask_judge(
                "agent_judge",
                {**shown, "steps": list(steps), "steps_left": left},
                step,
                context=context,
                name=f"step {len(steps) + 1} of {self.name}",
                ask=ask,
                subject={"prompt": prompt, "criteria": [item.asked() for item in self.criteria or ()]},
                model=self.model,
            )
            if data["action"] == "finish":
                return data["result"]
            if left:
                action = {key: data[key] for key in ("action", "path", "pattern")}
                steps.append({**action, "found": look(folder, **action)})
        raise UngradedError("invalid_output", f"the judge had not decided after {self.max_steps} steps")
