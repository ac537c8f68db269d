"""``python``: a function of a module, or of the program that runs the suite, answers."""

import hashlib
import importlib
import inspect
import sys
import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, is_dataclass, replace
from typing import Any, ClassVar

from pydantic import Field, PrivateAttr

from persona_pipeline.base.calls import BackgroundLoop, positional_arguments
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.answering.base import NOT_ALLOWED, REMEDIES, Request, TargetError, TargetFields
from persona_pipeline.suites.answering.output import Output, parse_output
from persona_pipeline.suites.format.files import ReasonedError, source_file

_PARAMETERS = (
    "prompt", "messages", "request", "test", "attempt", "workspace", "files", "last_message", "turn", "conversation",
)  # fmt: skip


class AwaitedTarget(TargetFields):
    """Waits for code that may raise any exception, which becomes the test's error. ``retried``: whether a timeout is retried."""

    retried: ClassVar[bool] = False

    _loop: BackgroundLoop = PrivateAttr(default_factory=lambda: BackgroundLoop("suite-target"))

    def prepare(self) -> None:
        if self.asks_network and not self._grants.reaches:
            raise self.failure(NOT_ALLOWED, f"it asks a server; {REMEDIES[NOT_ALLOWED]}")

    async def ask(self, request: Request) -> Any:
        """Return the answer in any form that ``answer_of`` accepts."""
        raise NotImplementedError

    def awaited(self, request: Request) -> Any:
        """Return the answer. Raises ``TimeoutError`` after the request's time."""
        return self._loop.wait(self.ask(request), request.timeout)

    def respond(self, request: Request) -> Output:
        self.prepare()
        try:
            return answer_of(self.awaited(request))
        except TimeoutError:
            said = f"took longer than {request.timeout:g} s"
            raise self.failure("timeout", said, transient=self.retried) from None
        except ReasonedError:
            raise
        except Exception as error:  # One crash must not end the run.
            raise self.failure("crashed", _said_by(error)) from error

    def close(self) -> None:
        self._loop.close()


class PythonTarget(AwaitedTarget):
    """Calls a function with the prompt; parameters such as ``messages`` and ``request`` get those values.

    The function may be a coroutine or a generator. It returns or yields text, messages, or a mapping as recorded answers
    are. Its exceptions are the test's error.
    """

    runs_code: ClassVar[bool] = True

    function: str = Field(
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$",
        description="package.module:function; modules beside the targets file are found too.",
    )

    _call: Callable[..., Any] | None = PrivateAttr(None)

    def awaited(self, request: Request) -> Any:
        return self._waited(self._call or self._found(), request)

    def _found(self) -> Callable[..., Any]:
        module, _, name = self.function.partition(":")
        folder = str(self.folder.resolve())
        if folder not in sys.path:
            sys.path.insert(0, folder)
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except Exception as error:
            said = f"{self.function} cannot be imported ({type(error).__name__}: {error})"
            raise self.failure("no_function", said) from error
        if not callable(found):
            raise self.failure("no_function", f"{self.function} is no function")
        self._call = found
        return found

    def _waited(self, call: Callable[..., Any], request: Request) -> Any:
        """Return the function's result, or raise after the request's time; a running function is then left alone."""
        if _is_async(call):
            return self._loop.wait(_awaited(call(*_arguments(call, request))), request.timeout)
        done: Future[Any] = Future()

        def work() -> None:
            try:
                given = call(*_arguments(call, request))
                if inspect.isawaitable(given) or isinstance(given, AsyncIterable):
                    given = self._loop.wait(_awaited(given), request.timeout)
                is_whole = not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping | list | Output)
                done.set_result(given if is_whole else list(given))
            except BaseException as error:
                done.set_exception(error)

        # A daemon thread outside any pool: a function that never ends blocks nothing.
        threading.Thread(target=work, name=f"target {self.name}", daemon=True).start()
        return done.result(request.timeout)

    def fingerprint(self) -> Mapping[str, Any]:
        source = source_file(self._call or self._found())
        text = b"" if source is None else source.read_bytes()
        return {**super().fingerprint(), "source": hashlib.sha256(text).hexdigest()}


def target_of(call: Callable[..., Any], name: str) -> PythonTarget:
    """Return a target for a function of the running program, which needs no permission."""
    if not callable(call):
        raise ConfigError(f"target {name!r} is no function")
    shown = f"{getattr(call, '__module__', None) or 'program'}:{getattr(call, '__qualname__', 'function')}"
    # In the form of the field, without brackets of ``<locals>`` and ``<lambda>``.
    written = shown.replace("<", "").replace(">", "")
    target = _Handed.model_validate({"name": name, "provider": "python", "function": written})
    target._call = call
    return target


class _Handed(PythonTarget):
    runs_code: ClassVar[bool] = False


def _said_by(error: Exception) -> str:
    """Return type and message of an exception; for a group, of its first one."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def answer_of(given: Any) -> Output:
    """Return the output of a function's result: a recorded answer's form, an object of an SDK, or pieces of a generator."""
    if isinstance(given, Output):
        return replace(given, messages=parse_output(given.messages).messages)
    given = [_plain(item) for item in given] if isinstance(given, list) else _plain(given)
    if isinstance(given, list) and given and all(isinstance(part, str) for part in given):
        return parse_output("".join(given))
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], Mapping) and "role" not in given[0]:
        return parse_output(given[0])
    return parse_output(given)


def _plain(given: Any) -> Any:
    """Return an SDK's object (a pydantic model or a dataclass) as JSON data; any other value unchanged."""
    if callable(dump := getattr(given, "model_dump", None)):
        return dump(mode="json")
    return asdict(given) if is_dataclass(given) and not isinstance(given, type) else given


async def _awaited(given: Awaitable[Any] | AsyncIterable[Any]) -> Any:
    if isinstance(given, AsyncIterable):
        return [part async for part in given]
    return await given


def _arguments(call: Callable[..., Any], request: Request) -> list[Any]:
    try:
        return positional_arguments(call, {name: request.named[name] for name in _PARAMETERS})
    except ValueError as error:
        raise TargetError("no_function", str(error)) from error


def _is_async(call: Callable[..., Any]) -> bool:
    called = call if inspect.isroutine(call) else getattr(call, "__call__", call)  # noqa: B004
    return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)
