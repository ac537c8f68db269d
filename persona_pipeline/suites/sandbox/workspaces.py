"""Workspaces: folders from a template, with hooks before and after, and a diff of the changes."""

import difflib
import json
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from persona_pipeline.suites.format.files import ReasonedError
from persona_pipeline.suites.format.models import HookFields, Suite, Test, WorkspaceFields
from persona_pipeline.suites.sandbox.processes import ProcessError, run_process

SETUP_SECONDS, TEARDOWN_SECONDS = 60.0, 30.0
MOST_DIFF_BYTES = 1_000_000
_MOST_FILE_BYTES = 1_000_000
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
# Hooks of a test, in order.
BEFORE, AFTER = ("before_each", "setup"), ("teardown", "after_each")


class WorkspaceError(ReasonedError):
    """The workspace could not be prepared."""

    where = "workspace: "


@dataclass
class WorkspaceFolder:
    """Workspace of a test. ``baseline``: text of its files after setup (None: not text, or too large)."""

    path: Path
    workspace: WorkspaceFields
    baseline: dict[str, str | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def changes(self) -> str:
        """Return the changes since setup as a unified diff, or ""."""
        return unified_diff(self.baseline, snapshot(self.path))


@dataclass
class Workspaces:
    """Creates and removes the workspaces of a run, under ``<folder>/<run id>/``."""

    suite: Suite
    folder: Path
    allow_code: bool = False
    keep: bool = False
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    def require_code(self) -> None:
        """Raise ``WorkspaceError`` if hooks may not run."""
        if not self.allow_code:
            raise WorkspaceError(
                "code_not_allowed", "workspace hooks run code of the suite; pass --allow-code if you trust it"
            )

    def prepare(self, test: Test, attempt: int, target: str | None) -> WorkspaceFolder | None:
        """Return a test's prepared workspace; None: it has none."""
        workspace = test.workspace
        if workspace is None or (workspace.template is None and not any(name in workspace.hooks for name in BEFORE)):
            return None
        if workspace.hooks:
            self.require_code()
        name = _UNSAFE.sub("_", f"{test.id}-{target or 'target'}-{attempt}")[:80]
        path = self.folder / self.run_id / f"{name}-{uuid.uuid4().hex[:6]}"
        try:
            if workspace.template is None:
                path.mkdir(parents=True)
            else:
                _copy(Path(workspace.template), path)
        except (OSError, shutil.Error) as error:
            raise WorkspaceError("workspace_failed", f"the workspace could not be made: {error}") from error
        for name in BEFORE:
            if name in workspace.hooks:
                self.run_hook(workspace.hooks[name], SETUP_SECONDS, path, test)
        return WorkspaceFolder(path, workspace, snapshot(path))

    def finish(self, made: WorkspaceFolder, test: Test, *, passed: bool) -> str | None:
        """Run the closing hooks and remove the workspace; return its path if it is kept, as after a failed test."""
        for name in AFTER:
            if name in made.workspace.hooks:
                try:
                    self.run_hook(made.workspace.hooks[name], TEARDOWN_SECONDS, made.path, test)
                except WorkspaceError as problem:
                    made.notes.append(f"{name}: {problem.message}")
        if self.keep or not passed:
            return str(made.path)
        shutil.rmtree(made.path, ignore_errors=True)
        return None

    def suite_hook(self, name: str) -> None:
        """Run ``before_all`` or ``after_all`` of the suite, in the suite's folder."""
        hook = self.suite.framing.get(name)
        if hook is not None:
            self.require_code()
            seconds = SETUP_SECONDS if name == "before_all" else TEARDOWN_SECONDS
            self.run_hook(hook, seconds, None, Test(f"__{name}__", ()))

    def run_hook(self, hook: HookFields, seconds: float, path: Path | None, test: Test) -> None:
        """Run one hook, by default in the suite's folder. ``path``: the workspace."""
        data = {
            "workspace_path": path and str(path),
            "test_id": test.id,
            "eval_run_id": self.run_id,
            "case_input": test.question or None,
            "case_metadata": test.metadata and dict(test.metadata),
        }
        beside = self.suite.path.parent
        place = str(path or beside)
        shown = " ".join(hook.script)
        try:
            result = run_process(
                hook.script,
                cwd=Path(hook.cwd or beside),
                stdin=json.dumps(data).encode("ascii"),
                timeout=seconds if hook.timeout_ms is None else hook.timeout_ms / 1000,
                environment={"AGENTV_WORKSPACE_PATH": place, "PERSONA_WORKSPACE_PATH": place},
            )
        except ProcessError as problem:
            raise WorkspaceError("workspace_failed", f"{shown}: {problem.message}") from problem
        if result.returncode != 0:
            said = f"{shown} exited with code {result.returncode}: {result.error_text}"
            raise WorkspaceError("workspace_failed", said)

    def close(self) -> None:
        """Remove the run's folder if it is empty."""
        place = self.folder / self.run_id
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def _copy(template: Path, path: Path) -> None:
    """Copy a template without ``.git``, and without links that leave it."""
    root = template.resolve()

    def skipped(folder: str, names: list[str]) -> set[str]:
        left_out = {".git"} & set(names)
        for name in names:
            place = Path(folder, name)
            if place.is_symlink() and not place.resolve().is_relative_to(root):
                left_out.add(name)
        return left_out

    shutil.copytree(template, path, symlinks=True, ignore=skipped)


def snapshot(folder: Path) -> dict[str, str | None]:
    """Return the text of every file in a folder by its path; None for a file that is not text or is large."""
    found: dict[str, str | None] = {}
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted(names):
            path = Path(place, name)
            if path.is_symlink() or not path.is_file():
                continue
            found[path.relative_to(folder).as_posix()] = _text(path)
    return found


def _text(path: Path) -> str | None:
    try:
        if path.stat().st_size > _MOST_FILE_BYTES:
            return None
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def unified_diff(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> str:
    """Return the diff of two snapshots in git's form, cut at a megabyte."""
    parts: list[str] = []
    for name in sorted({*before, *after}):
        old, new = before.get(name, ""), after.get(name, "")
        if name in before and name in after and old == new:
            continue
        parts.append(f"diff --git a/{name} b/{name}\n")
        if old is None or new is None:
            parts.append(f"Binary files a/{name} and b/{name} differ\n")
            continue
        source = f"a/{name}" if name in before else "/dev/null"
        target = f"b/{name}" if name in after else "/dev/null"
        for line in difflib.unified_diff(old.splitlines(True), new.splitlines(True), source, target):
            parts.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    text = "".join(parts)
    return text if len(text) <= MOST_DIFF_BYTES else text[:MOST_DIFF_BYTES] + "\n[cut]\n"
