"""``cli``: a program answers, on standard output or in a file."""

import contextlib
import json
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, PrivateAttr, field_validator

from persona_pipeline.suites.answering.base import Request, TargetFields
from persona_pipeline.suites.answering.output import Output, OutputError, parse_output
from persona_pipeline.suites.format.models import Text
from persona_pipeline.suites.format.text import parse_json
from persona_pipeline.suites.sandbox.processes import ProcessError, ProcessResult, run_process

PLACEHOLDERS = (
    "PROMPT", "GUIDELINES", "EVAL_ID", "ATTEMPT", "FILES", "OUTPUT_FILE", "LAST_MESSAGE", "TURN", "CONVERSATION",
)  # fmt: skip
_NAME = re.compile(r"\{([A-Z_]+)\}")
_SHELL_SIGNS = ("|", ">", ">>", "<", "&&", "||", ";", "&", "2>&1")


def _argv(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise ValueError(f"cannot be split into arguments ({error}); write it as a list") from error
    if not isinstance(value, list) or not value or not all(isinstance(token, str) and token for token in value):
        raise ValueError("must be a program and its arguments, as text or as a list")
    for token in value:
        if token in _SHELL_SIGNS:
            raise ValueError(
                f"{token!r} would need a shell, and there is none; put it into a script: [sh, run.sh, '{{PROMPT}}']"
            )
    return value


Argv = Annotated[list[str], BeforeValidator(_argv)]


class CliTarget(TargetFields):
    """Runs a program for each test. Needs permission to run code.

    Arguments may contain ``{PROMPT}``, ``{EVAL_ID}``, ``{ATTEMPT}``, ``{FILES}``, ``{GUIDELINES}``, ``{OUTPUT_FILE}``,
    ``{LAST_MESSAGE}``, ``{TURN}`` and ``{CONVERSATION}``; no shell is used. The answer is the output file, else standard
    output: messages as JSON, or text.
    """

    runs_code: ClassVar[bool] = True
    older_names: ClassVar[dict[str, str]] = {"command": "command_template"}

    command: Argv = Field(description="The program and its arguments.")
    files_format: Text = Field("{path}", description="How each of {FILES} is written.")
    cwd: Text | None = Field(None, description="Where it runs; the workspace or the targets file's folder by default.")
    timeout_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    environment: dict[str, str] = Field(default_factory=dict, description="Added to the little environment it gets.")
    provider_batching: bool = Field(
        False, description="Run the program once for all tests; it prints a JSON line for each."
    )
    keep_temp_files: bool = False
    verbose: bool = False

    _batch: dict[str, Output] = PrivateAttr(default_factory=dict)

    @field_validator("command")
    @classmethod
    def _known_placeholders(cls, value: list[str]) -> list[str]:
        for token in value:
            for name in _NAME.findall(token):
                if name not in PLACEHOLDERS:
                    raise ValueError(f"{{{name}}} is not a placeholder; known: {', '.join(PLACEHOLDERS)}")
        return value

    def respond(self, request: Request) -> Output:
        if request.test.id in self._batch:
            return self._batch[request.test.id]
        values = {
            "PROMPT": request.prompt,
            "EVAL_ID": request.test.id,
            "ATTEMPT": str(request.attempt),
            "LAST_MESSAGE": request.last_message,
            "TURN": str(request.turn + 1),
            "CONVERSATION": request.conversation,
            "FILES": " ".join(self.files_format.replace("{path}", path) for path in request.files),
        }
        written, seconds = self._answer(values, request.workspace, request.timeout)
        output = self._read(written)
        if output.duration_ms is None:
            output.duration_ms = round(seconds * 1000, 3)
        return output

    def answer_all(self, requests: Sequence[Request]) -> None:
        """Ask for many answers at once, for ``respond`` to return. Tests that the program leaves out are asked one by one.

        The program gets a JSON line per test on standard input (``id``, ``prompt``, ``messages``) and writes one with ``id`` and
        an answer.
        """
        rows = [{"id": item.test.id, "prompt": item.prompt, "messages": list(item.messages)} for item in requests]
        asked = "".join(json.dumps(row) + "\n" for row in rows)
        values = {**dict.fromkeys(PLACEHOLDERS, ""), "EVAL_ID": "batch", "ATTEMPT": "0"}
        written, _ = self._answer(values, None, max(item.timeout for item in requests), asked.encode("ascii"))
        for line in written.decode("utf-8", "replace").split("\n"):
            if line.strip():
                try:
                    row = parse_json(line)
                    identity = row.pop("id")
                    self._batch[identity] = parse_output(row)
                except (ValueError, TypeError, KeyError, AttributeError, OutputError) as error:
                    raise self.failure("invalid_response", f"a line of its batch is not an answer: {error}") from error

    def fingerprint(self) -> Mapping[str, Any]:
        return {**super().fingerprint(), "folder": str(self.folder)}

    def _answer(
        self, values: Mapping[str, str], workspace: str | None, timeout: float, stdin: bytes = b""
    ) -> tuple[bytes, float]:
        """Return the output file, else standard output, and the time it took."""
        with contextlib.ExitStack() as stack:
            folder = Path(
                tempfile.mkdtemp(prefix="persona-target-")
                if self.keep_temp_files
                else stack.enter_context(tempfile.TemporaryDirectory(prefix="persona-target-"))
            )
            file = folder / "answer.json"
            known = {"GUIDELINES": "", "OUTPUT_FILE": str(file), **values}
            cwd = Path(workspace) if workspace else self.folder
            if self.cwd is not None:
                cwd = self.folder / self.cwd
            argv = [_filled(token, known) for token in self.command]
            result = self._checked(argv, cwd, min(timeout, self.timeout_seconds or timeout), stdin)
            return (file.read_bytes() if file.is_file() else result.stdout), result.seconds

    def _read(self, raw: bytes) -> Output:
        text = raw.decode("utf-8", "replace")
        value: Any = text
        if text.lstrip()[:1] in ("{", "["):
            with contextlib.suppress(ValueError):
                value = parse_json(text)
        try:
            return parse_output(value)
        except OutputError as error:
            if error.hides_a_call:
                raise
            # JSON of another shape is the answer's text.
            return parse_output(text)

    def _checked(self, argv: list[str], cwd: Path, timeout: float, stdin: bytes = b"") -> ProcessResult:
        try:
            result = run_process(argv, cwd=cwd, stdin=stdin, timeout=timeout, environment=self.environment)
        except (ProcessError, ValueError) as problem:
            reason = getattr(problem, "reason", "target_failed")
            raise self.failure(reason, str(problem), transient=reason == "timeout") from problem
        if result.returncode != 0:
            text = result.error_text or "no message on standard error"
            raise self.failure("target_failed", f"{text} (exit code {result.returncode})")
        return result


def _filled(token: str, values: Mapping[str, str]) -> str:
    """Replace placeholders in one pass, so that those inside a prompt stay."""
    return _NAME.sub(lambda match: values.get(match[1], match[0]), token).replace("\0", "\ufffd")
