"""``code_judge``: a program of the suite grades the output, JSON in and JSON out; ``function``: a Python function does."""

import inspect
import json
import math
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from persona_pipeline.base.calls import positional_arguments
from persona_pipeline.base.errors import did_you_mean
from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.files import SHELL, source_file
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.format.text import parse_json
from persona_pipeline.suites.grading.base import OLDER, Assert, Context
from persona_pipeline.suites.grading.results import TOLERANCE, Grade, SuiteVerdict, UngradedError
from persona_pipeline.suites.sandbox.processes import ProcessError, run_process

LARGE_OUTPUT = 50_000
_OLDER = {**OLDER, "output_messages": "output", "input_messages": "input", "trace_summary": "trace"}
_KNOWN = ("name", "type", "weight", "required", "negate", "script", "cwd", "target", "config")


def _arguments(value: Any) -> Any:
    if isinstance(value, str) and value.strip() and "\0" not in value:
        return [*SHELL, value]
    if isinstance(value, list) and value:
        return value
    raise ValueError("must be a list of arguments, or a line for the shell")


def _argument(value: Any) -> Any:
    if isinstance(value, str) and value.strip() and "\0" not in value:
        return value
    raise ValueError("must be a text that is not blank")


# A program and its arguments. Text is a line for the platform's shell (spec/3).
Script = Annotated[list[Annotated[str, BeforeValidator(_argument)]], BeforeValidator(_arguments)]


class Function(Assert):
    """A function of the running program grades the answer; for suites that are written in Python.

    It gets the answer's text; parameters named ``output``, ``test``, ``question``, ``criteria`` and ``attempt`` get those
    values. It returns whether the answer holds, a score 0-1, a ``Grade``, or a mapping with the keys of a code judge. An
    ``AssertionError`` is a failure with its message. None is a pass only for a function marked ``-> None``; otherwise it is
    an error, because a search without a result returns None too.
    """

    call: Callable[..., Any] = Field(exclude=True, description="The function.")

    @property
    def program(self) -> tuple[Sequence[str], str | None] | None:
        source = source_file(self.call)
        return None if source is None else (["python", source.name], str(source.parent))

    @property
    def needs_code(self) -> bool:
        """The function is part of the program that runs the suite, which needs no permission."""
        return False

    def dump(self) -> dict[str, Any]:
        """Return the normalised form, with the function's line and the values it holds."""
        call = inspect.unwrap(self.call)
        code = getattr(call, "__code__", None)
        held: list[Any] = [getattr(call, name, None) for name in ("__self__", "__defaults__", "__kwdefaults__")]
        try:
            held += [cell.cell_contents for cell in getattr(call, "__closure__", None) or ()]
        except ValueError:
            code = None
        # Without code it is shown by its address, so the test runs again.
        about = [call] if code is None else [call.__module__, call.__qualname__, code.co_firstlineno, *held]
        return super().dump() | {"function": repr(about)}

    def default_name(self, spelled: str) -> str:
        return getattr(self.call, "__name__", spelled).replace("<lambda>", "lambda")

    def grade(self, output: Output, context: Context) -> Grade:
        test = context.test
        named = {
            "answer": output.text,
            "output": output,
            "test": test,
            "question": test.question,
            "criteria": test.expected_outcome,
            "attempt": context.attempt,
        }
        try:
            given = self.call(*positional_arguments(self.call, named))
        except AssertionError as problem:
            return Grade(0.0, misses=(str(problem) or f"{self.name} does not hold",))
        if given is None and inspect.signature(self.call).return_annotation in (None, "None"):
            given = True
        if isinstance(given, bool):
            return Grade.of(given, f"{self.name} holds", f"{self.name} does not hold")
        if isinstance(given, Grade):
            return given
        return grade_of(given if isinstance(given, Mapping) else {"score": given}, f"function {self.name}")


class CodeJudge(Assert):
    """The score, 0-1, that the suite's program prints. Runs only when code is allowed.

    The program gets one JSON document on standard input. It prints one JSON object with ``score`` and optionally ``hits``,
    ``misses``, ``reasoning`` and ``details``. A crash, a timeout or any other output is an error.
    """

    older_names: ClassVar[dict[str, str]] = {"script": "command"}

    script: Script = Field(
        min_length=1, description="The program and its arguments; text is a line for the platform's shell."
    )
    cwd: str | None = Field(None, description="Where it runs; the suite's folder by default.")
    config: dict[str, Any] | None = Field(None, description="Handed to the program; unknown keys are added to it.")

    @property
    def program(self) -> tuple[Sequence[str], str | None] | None:
        return self.script, self.cwd

    @classmethod
    def prepare(cls, data: dict[str, Any], entry: ConfigEntry, reader: Reader) -> dict[str, Any]:
        if "command" in data and "script" not in data:
            reader.deprecated(entry, "command", "rename it to script", "command")
            data["script"] = data.pop("command")
        if data.pop("target", None):
            said = "a program cannot ask the target any more; remove target, and grade what was answered"
            reader.fail(entry, said, "target", key=True)
        config = dict(data["config"]) if isinstance(data.get("config"), dict) else data.get("config")
        extra = {key: data.pop(key) for key in list(data) if key not in _KNOWN}
        for key in extra:
            hint = did_you_mean(key, _KNOWN)
            if hint:
                reader.warn(entry, f"{key!r} is handed to the script as config{hint}", key, key=True)
        if extra and (config is None or isinstance(config, dict)):
            data["config"] = {**(config or {}), **extra}
        if isinstance(data.get("cwd"), str):
            data["cwd"] = reader.find_folder(entry, data["cwd"], "cwd", "cwd")
        return data

    def resolve(self, entry: ConfigEntry, reader: Reader) -> None:
        reader.check_program(self.script, entry, "script", folder=self.cwd)

    def grade(self, output: Output, context: Context) -> Grade:
        context.require_code(f"code_judge {self.name!r}")
        with tempfile.TemporaryDirectory(prefix="persona-judge-") as folder:
            data = payload(output, context, self.config, Path(folder))
            environment: dict[str, str] = {}
            if output.workspace is not None:
                environment = dict.fromkeys(("AGENTV_WORKSPACE_PATH", "PERSONA_WORKSPACE_PATH"), output.workspace)
            cwd = Path(self.cwd or context.suite.path.parent)
            return read_grade(run_script(self.script, data, cwd, context, environment))


def payload(output: Output, context: Context, config: dict[str, Any] | None, folder: Path) -> dict[str, Any]:
    """Return the standard input of a program. User data keeps its keys; older names are there next to the current ones.

    Messages of more than 50,000 bytes are in a file in ``folder``, named by ``output_path``.
    """
    test = context.test
    messages: list[dict[str, Any]] | None = output.messages
    path = None
    text = json.dumps(messages, ensure_ascii=True)
    if len(text) > LARGE_OUTPUT:
        path, messages = folder / "output.json", None
        path.write_text(text, encoding="utf-8")
    data = {
        "question": test.question,
        "criteria": test.expected_outcome,
        "expected_output": list(test.expected_messages),
        "reference_answer": test.reference_answer,
        "answer": output.text,
        "output": messages,
        "output_path": None if path is None else str(path),
        "guideline_files": [],
        "input_files": list(test.files),
        "input": list(test.input_messages),
        "trace": output.trace(),
        "file_changes": output.file_changes,
        "workspace_path": output.workspace,
        "config": config,
    }
    return data | {older: data[name] for older, name in _OLDER.items()}


def run_script(
    script: list[str],
    data: dict[str, Any],
    cwd: Path,
    context: Context,
    environment: dict[str, str] | None = None,
    *,
    called: str = "",
) -> bytes:
    """Return the output of a program of the suite that gets JSON. ``called``: its name in messages."""
    stdin, called = json.dumps(data, ensure_ascii=True).encode("ascii"), called or shlex.join(script)
    try:
        result = run_process(script, cwd=cwd, stdin=stdin, timeout=context.time_left(), environment=environment)
    except ProcessError as problem:
        raise UngradedError(problem.reason, f"{called}: {problem.message}") from problem
    if result.returncode != 0:
        raise UngradedError("script_failed", f"{called} exited with code {result.returncode}: {result.error_text}")
    return result.stdout


def read_grade(stdout: bytes, *, own_verdict: bool = False) -> Grade:
    try:
        data = parse_json(stdout.decode("utf-8").strip())
    except ValueError as error:
        shown = stdout[:80].decode("utf-8", "replace").strip()
        said = f"the script must print one JSON object, it printed {shown!r} ({error})"
        raise UngradedError("invalid_output", said) from error
    if not isinstance(data, dict):
        raise UngradedError("invalid_output", "the script must print one JSON object")
    return grade_of(data, "the script", own_verdict=own_verdict)


def grade_of(data: Mapping[str, Any], who: str, *, own_verdict: bool = False) -> Grade:
    score = data.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise UngradedError("invalid_output", f"{who}'s score must be a number from 0 to 1, not {score!r}")
    if not -TOLERANCE <= score <= 1 + TOLERANCE:
        raise UngradedError("invalid_output", f"{who}'s score must be from 0 to 1, not {score!r}")
    verdict = data.get("verdict") if own_verdict else None
    details = data.get("details")
    reasoning = data.get("reasoning")
    return Grade(
        min(1.0, max(0.0, score)),
        sentences(data.get("hits")),
        sentences(data.get("misses")),
        reasoning if isinstance(reasoning, str) else None,
        SuiteVerdict(verdict) if verdict in ("pass", "borderline", "fail") else None,
        details if isinstance(details, dict) else None,
    )


def sentences(value: Any) -> tuple[str, ...]:
    """Return the texts of a list without blank ones."""
    return tuple(text for text in value if isinstance(text, str) and text.strip()) if isinstance(value, list) else ()
