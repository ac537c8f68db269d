"""Pull requests on a world in git, through the shell of the composite action as it stands, its programs in this process."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from persona_pipeline.base.settings import get_settings
from persona_pipeline.judging.recordings.replay import RecordedBackend, sign_recordings
from tests.support.github import Runner, step

PROJECT = Path(__file__).parents[2]
ACTION = PROJECT / "action.yml"
STEPS = ("Who may judge", "Validate", "Evaluate", "Summary")
AGENTS, DIMENSIONS = ("dwight", "jim", "michael", "pam"), ("adherence",)
DRIFT = "2026-06-15"
_PROGRAM = """#!/bin/bash
if [ "$1" = -I ] && [ "$2" = - ]; then exec {python} "$@"; fi
asked=$(mktemp -d {folder}/asked.XXXXXX)
mkfifo "$asked/done"
printf '%s\\0' "${{0##*/}}" "$@" > "$asked/command"
env -0 > "$asked/environment"
echo "$asked" > {folder}/queue
code=$(cat "$asked/done")
cat "$asked/out"
cat "$asked/err" >&2
exit "$code"
"""


def git(root: Path, *arguments: str) -> str:
    """Run git as somebody; returns what it prints."""
    settings = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(root), *settings, *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def rows(path: Path) -> list[dict]:
    """Return the JSON lines of a file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write_rows(path: Path, data: Sequence[Mapping]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in data), "utf-8")


def build_repository(top: Path, secret: str = "") -> Path:
    """Make a repository whose branch ``main`` is a healthy world in the folder ``world``, and ``week`` adds one in which Michael
    collapses; returns the repository."""
    world = top / "world"
    for folder in ("personas", "propositions", "messages", "recordings", "baselines"):
        shutil.copytree(PROJECT / folder, world / folder)
    shutil.rmtree(world / "recordings" / "suites", ignore_errors=True)
    for path in (world / "propositions").iterdir():
        if path.is_dir() and path.name not in DIMENSIONS:
            shutil.rmtree(path)
    for agent in AGENTS:
        for path in (world / "recordings" / agent).iterdir():
            if path.stem not in DIMENSIONS:
                path.unlink()
        path = world / "baselines" / f"{agent}.json"
        golden = json.loads(path.read_text("utf-8"))
        for part in (golden["dimensions"], golden["propositionScores"], golden["provenance"]["dimensions"]):
            for name in [*part]:
                if name not in DIMENSIONS:
                    del part[name]
        path.write_text(json.dumps(golden, indent=2) + "\n", "utf-8")
    if secret:
        sign_recordings(world / "recordings", secret.encode("utf-8"))
        (world / "recordings" / ".lock").unlink()
    (top / ".github" / "workflows").mkdir(parents=True)
    (top / ".github" / "workflows" / "personas.yml").write_text("on: pull_request\n", "utf-8")
    (top / "README.md").write_text("# An office\n", "utf-8")
    later = {path: path.read_text("utf-8") for path in (world / "messages").rglob("*.jsonl")}
    for path in later:
        write_rows(path, [row for row in rows(path) if row["created_at"] < DRIFT])
    git(top.parent, "init", "--quiet", "--initial-branch=main", str(top))
    git(top, "add", "-A")
    git(top, "commit", "--quiet", "-m", "a healthy world")
    git(top, "branch", "healthy")
    git(top, "switch", "--quiet", "-c", "week")
    for path, text in later.items():
        path.write_text(text, "utf-8")
    git(top, "commit", "--quiet", "-a", "-m", "another week")
    # One file of git's to be copied a hundred times, and not a few hundred.
    git(top, "gc", "--quiet")
    return top


@dataclass
class Judged:
    """How a pull request was judged.

    Attributes:
        code: the exit code of the first step that failed.
        comment: what the summary's comment says; "" where there is none.
    """

    code: int
    comment: str = ""
    summary: str = ""
    said: str = ""

    @property
    def first_lines(self) -> str:
        """What stands before the table, Markdown's escapes taken out."""
        head = (self.comment or self.summary).split("\n| ", 1)[0]
        return head.replace("\\", "").replace("\u200b", "")

    @property
    def lines_before_the_verdict(self) -> int:
        lines = [line for line in self.comment.splitlines() if line.strip() and not line.startswith("<!--")]
        return next(number for number, line in enumerate(lines) if line.startswith("## "))


@dataclass
class Programs:
    """The programs that the action installs, run in this process: ``folder`` is made as a virtual environment is."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        binary = self.folder / "bin"
        binary.mkdir(parents=True)
        os.mkfifo(self.folder / "queue")
        for name in ("python", "persona-pipeline", "dagster"):
            text = _PROGRAM.format(python=sys.executable, folder=self.folder)
            (binary / name).write_text(text, "utf-8")
            (binary / name).chmod(0o755)

    @contextlib.contextmanager
    def served(self) -> Iterator[None]:
        """Answer what steps ask for while they run."""
        thread = threading.Thread(target=self._serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            (self.folder / "queue").write_text("stop\n", "utf-8")
            thread.join(60)

    def _serve(self) -> None:
        with os.fdopen(os.open(self.folder / "queue", os.O_RDWR), "r", encoding="utf-8") as queue:
            while (line := queue.readline().strip()) != "stop":
                asked = Path(line)
                command = (asked / "command").read_text("utf-8").split("\0")[:-1]
                told = (item.partition("=") for item in (asked / "environment").read_text("utf-8").split("\0") if item)
                out, err = io.StringIO(), io.StringIO()
                code = self._run(command, {name: value for name, _, value in told}, out, err)
                (asked / "out").write_text(out.getvalue(), "utf-8")
                (asked / "err").write_text(err.getvalue(), "utf-8")
                (asked / "done").write_text(f"{code}\n", "utf-8")

    def _run(self, command: list[str], environment: dict[str, str], out: io.StringIO, err: io.StringIO) -> int:
        given = {name: value for name, value in environment.items() if name.startswith("PERSONA_")} | self.environment
        before = {name: os.environ.get(name) for name in given}
        os.environ.update(given)
        get_settings.cache_clear()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                return _program(command)
        except SystemExit as ended:
            return int(ended.code or 0)
        except BaseException as error:
            err.write(f"{type(error).__name__}: {error}\n")
            return 99
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
            get_settings.cache_clear()


def _program(command: list[str]) -> int:
    from persona_pipeline.cli import main
    from persona_pipeline.reporting import comment

    name, *arguments = command
    if name == "persona-pipeline":
        before, sys.argv = sys.argv, [name, *arguments]
        try:
            main()
        finally:
            sys.argv = before
        return 0
    if name == "python":
        assert arguments[:3] == ["-I", "-m", "persona_pipeline.reporting.comment"], arguments
        return comment.main(arguments[3:])
    assert arguments[:-1] == ["job", "execute", "-m", "persona_pipeline.definitions", "-j", "persona_regression", "-c"]
    return _regression(Path(arguments[-1]))


def _regression(config: Path) -> int:
    """The one step of the job, without a run of Dagster around it."""
    from persona_pipeline.base.errors import ConfigError
    from persona_pipeline.base.options import EvaluationRequest
    from persona_pipeline.defs.cohort import RegressionConfig, write_reports
    from persona_pipeline.evaluation.against import fresh_world
    from persona_pipeline.evaluation.run import run_evaluation
    from persona_pipeline.judging.open import open_judge
    from persona_pipeline.world import World

    told = RegressionConfig(**yaml.safe_load(config.read_text("utf-8"))["ops"]["regression_report"]["config"])
    try:
        request = EvaluationRequest(**told.given)
        with fresh_world() if request.against else contextlib.nullcontext(World.open()) as world:
            report = run_evaluation(world, open_judge(request.judge or "recorded", world), request).report
        write_reports(report, Path(told.reports))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return report.exit_code


def judge(
    repository: Path,
    folder: Path,
    edit: Callable[[Path], object],
    *,
    branch: str = "week",
    secret: str = "",
    **inputs: str,
) -> Judged:
    """Open a pull request from a copy of a repository and judge it by the action's steps.

    Args:
        edit: what the author does to the world's folder, on top of ``branch``.
        secret: what recordings are signed with.
        inputs: of the action.
    """
    top = folder / "checkout"
    shutil.copytree(repository, top, symlinks=True)
    git(top, "switch", "--quiet", branch)
    edit(top / "world")
    git(top, "add", "-A", "--force")
    git(top, "commit", "--quiet", "--allow-empty", "-m", "the author's")
    # As GitHub checks a pull request out.
    git(top, "switch", "--quiet", "--detach", "main")
    git(top, "merge", "--quiet", "--no-ff", "-m", "merge", branch)
    runner = Runner(folder / "runner", top)
    programs = Programs(runner.temp / "persona-pipeline", {"PERSONA_RECORDINGS_SECRET": secret} if secret else {})
    code, said = 0, ""
    with programs.served():
        for name in STEPS:
            always = step(ACTION, name).get("if", "").startswith("always()")
            if code and not always:
                continue
            done = runner.run(ACTION, name, root="world", **inputs)
            said += done.stdout + done.stderr
            code = code or done.returncode
    comment = runner.temp / "persona-report" / "comment.md"
    return Judged(code, comment.read_text("utf-8") if comment.exists() else "", runner.summary, said)


def record(world: Path, **said: int) -> None:
    """Record what the world's newest week asks and nobody judged, as a judge would who sees everybody in character.

    Args:
        said: scores by agent, where another one is due.
    """
    from persona_pipeline.base.options import EvaluationRequest
    from persona_pipeline.evaluation.against import fresh_world
    from persona_pipeline.judging.recordings.writing import RecordingWriter
    from persona_pipeline.judging.verdict import Evidence, Verdict
    from tests.support.evaluating import planned

    known = RecordedBackend(world / "recordings")
    asked, told = [], []
    with fresh_world(world) as opened:
        for plan in planned(opened, EvaluationRequest()):
            inverted = {
                item.id
                for found in plan.sets.values()
                if found.propositions
                for item in found.propositions.propositions
                if item.inverted
            }
            for request in plan.requests:
                if not request.trajectory.entries or known.has_recorded([request]):
                    continue
                entry = request.trajectory.entries[0]
                good = said.get(request.agent_id, 8)
                score = 9 - good if request.proposition_id in inverted else good
                quote = Evidence(entry.message_id, entry.text[:20], True)
                asked.append(request)
                told.append(
                    Verdict(
                        request.proposition_id,
                        score=score,
                        reasoning="x",
                        evidence=(quote,),
                        model="claude (read for the sample world)",
                        prompt_version="rubric-2026-11",
                    )
                )
    RecordingWriter(world / "recordings").record(asked, told)
    (world / "recordings" / ".lock").unlink(missing_ok=True)
