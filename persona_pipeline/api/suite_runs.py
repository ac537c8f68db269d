"""Eval suites from Python: load a suite, run it, read its results."""

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from typing_extensions import Unpack

from persona_pipeline.api.evaluating import WorldLike, check_keywords, opened_world
from persona_pipeline.base.settings import Settings, get_settings
from persona_pipeline.suites.answering.base import Responses, load_responses
from persona_pipeline.suites.format.models import Suite
from persona_pipeline.suites.grading.results import SuiteResult, TestResult
from persona_pipeline.suites.running import opening
from persona_pipeline.suites.running.plan import RunOptions, Targets
from persona_pipeline.suites.running.suite_run import run_suites
from persona_pipeline.world.personas import is_world

if TYPE_CHECKING:
    import pandas as pd

    from persona_pipeline.suites.running.opening import GivenJudge


class Running(TypedDict, total=False):
    """Options of a suite's run by name: those of ``persona-pipeline suite run`` in Python.

    Attributes:
        world: the source of recordings, personas and the store; None: the world of the settings.
        responses: recorded answers, or a file of them, to grade instead of asking a target.
        targets: a targets file, a function that answers, or functions by name; None: the nearest ``targets.yaml``.
        target: the target to use, instead of the suite's. If neither names a target, all functions by name answer.
        test_ids: globs; a test runs if one matches.
        tags: a test runs if it or its suite has one of them.
        judge: a judge, or its name as in ``open_judge``; it is opened when the first assert needs it.
        record: write the answers of a live judge to the world's recordings.
        max_usd: US dollars that judge and targets may cost; tests beyond this limit are errors.
        allow_code: let the suite run its own programs.
        allow_env: environment variables that the suite's targets file may read.
        allow_targets: let targets that the suite names ask servers.
        workers: tests at once; None: the target's number, else 1.
        timeout: seconds one attempt may take, answer and grading together.
        max_retries: further tries after a failure that may be temporary.
        cache: reuse earlier answers of a target; None: as the suite says.
        rows: a ``.jsonl`` file that collects results during the run; tests whose result in it is still valid are not run again.
        on_result: called with each result as soon as it is available.
    """

    world: WorldLike | None
    responses: Responses | Path | str | None
    targets: Targets | Path | str | Callable[..., Any] | Mapping[str, Callable[..., Any]] | None
    target: Sequence[str] | str
    test_ids: Sequence[str] | str
    tags: Sequence[str] | str
    judge: "GivenJudge | str"
    record: bool
    max_usd: float | None
    allow_code: bool
    allow_env: Sequence[str]
    allow_targets: bool
    workers: int | None
    timeout: float
    max_retries: int
    cache: bool | None
    rows: Path | str | None
    on_result: Callable[[TestResult], None] | None


@dataclass(frozen=True, repr=False)
class SuiteRun(SuiteResult):
    """A finished run of a suite, as a notebook shows it. ``tests``: each one's result; ``summary``: counts and the mean."""

    def to_frame(self, by: str = "test") -> "pd.DataFrame":
        """Return the run as a data frame; a score that could not be judged is NaN, with the reason in ``error``.

        Args:
            by: one row per ``test`` or ``assert``.

        Raises:
            ConfigError: the kind of row is unknown.
        """
        from persona_pipeline.api.frames import suite_frame

        return suite_frame(self, by)

    @property
    def headline(self) -> str:
        """The run in one short sentence."""
        from persona_pipeline.reporting.pages.suites import counted

        return f"{self.suite}: {counted(self)}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline}>"

    def write(self, path: Path | str) -> None:
        """Write the run to a file: ``.html``, ``.json`` or ``.xml`` (JUnit)."""
        from persona_pipeline.reporting.render import write_suites

        write_suites(self, [self], Path(path))

    def _repr_html_(self) -> str:
        from persona_pipeline.reporting.pages.suites import tests_page
        from persona_pipeline.reporting.render import render_page

        return render_page(tests_page(self, self.headline), "notebook")


class Test(TypedDict, total=False):
    """A test of a suite in Python; all other keys of the format are allowed too.

    Attributes:
        id: its name in results, unique in the suite; by default ``test-1``, ``test-2``, ...
        input: the prompt: text, or messages; in a conversation, the messages before the first turn.
        turns: a conversation: the user's lines, as texts or mappings with ``user`` and ``assert``.
        user: the simulated user after the turns: ``target``, ``goal``, ``agent``, ``turns`` (at most).
        each_turn: asserts on every answer of a conversation.
        asserts: functions of the answer, and mappings as in a file.
        criteria: the goals of a good answer, for a judge.
        expected_output: a good answer.
        metadata: any data; ``tags`` in it can be filtered by.
        trials: number of attempts and their aggregation, as in a file.
        targets: targets that answer; by default the suite's.
    """

    id: str
    input: str | Sequence[Mapping[str, Any]]
    turns: "Sequence[str | Mapping[str, Any]]"
    user: Mapping[str, Any]
    each_turn: "Sequence[Callable[..., Any] | Mapping[str, Any]]"
    asserts: "Sequence[Callable[..., Any] | Mapping[str, Any]]"
    criteria: str
    expected_output: Any
    metadata: Mapping[str, Any]
    trials: Mapping[str, Any]
    targets: Sequence[str]


def make_suite(name: str, tests: "Iterable[Test | Mapping[str, Any]]", **fields: Any) -> Suite:
    """Make a suite in Python; it runs, resumes and is reported as one from a file.

    Args:
        name: lowercase letters, digits and hyphens.
        tests: each a ``Test``, or a mapping with the keys of the format.
        fields: of the suite: ``asserts`` for every test, ``trials``, ``target``, ``tags`` and the others of the format.

    Raises:
        ConfigError: it is not valid: every problem, at the line that makes it.
    """
    caller = sys._getframe(1)
    path = Path(caller.f_code.co_filename).absolute()
    if not path.is_file():
        # In a notebook's cell or at a prompt, paths are relative to the current folder.
        path = Path.cwd() / f"{name}.py"
    roots = opening.suite_roots(path, get_settings())
    return opening.make_suite(name, [*tests], path, caller.f_lineno, roots, **fields)


def load_suite(path: Path | str, *, allow_path: Iterable[Path | str] = ()) -> Suite:
    """Load a suite from ``.yaml``, ``.yml`` or ``.jsonl``.

    Args:
        allow_path: further folders whose files the suite may name; by default only those of its repository, else its folder.

    Raises:
        ConfigError: the suite is not valid; lists every problem with its file, line and column.
    """
    return _load(path, get_settings(), allow_path)


def run_suite(suite: Suite | Path | str, **how: Unpack[Running]) -> SuiteRun:
    """Run a suite and return every test's result, in the suite's order. Works inside a running event loop too.

    Args:
        suite: a loaded suite, or its file.
        how: responses, targets, judge and the rest: see ``Running``.

    Raises:
        ConfigError: the suite is not valid, a filter matches nothing, or there are neither targets nor responses.
    """
    check_keywords(how, Running)
    world, judge = how.get("world"), how.get("judge")
    world = None if world is None else opened_world(world)
    settings = world.settings if world else get_settings()
    loaded = suite if isinstance(suite, Suite) else _load(suite, settings)
    if judge is None or isinstance(judge, str):
        shared = opening.open_judge(
            judge or settings.judge, settings, record=how.get("record", False), max_usd=how.get("max_usd"), world=world
        )
    else:
        shared = opening.SuiteJudge(judge, max_usd=how.get("max_usd"))
    responses = how.get("responses")
    if isinstance(responses, Path | str):
        responses = load_responses(responses)
    rows = None if (rows := how.get("rows")) is None else Path(rows)
    (result,) = run_suites(
        [loaded],
        _options(how, settings, rows),
        targets=[None if responses is not None else _targets(loaded, how, settings)],
        responses=responses,
        judge=shared,
        rows=rows,
        resume=rows is not None,
        on_result=how.get("on_result"),
    )
    return SuiteRun(**{item.name: getattr(result, item.name) for item in fields(SuiteResult)})


async def run_suite_async(suite: Suite | Path | str, **how: Unpack[Running]) -> SuiteRun:
    """Run a suite as ``run_suite`` does, without blocking the event loop. Cancelling stops the waiting, not the work."""
    return await asyncio.to_thread(run_suite, suite, **how)


def _load(path: Path | str, settings: Settings, allow_path: Iterable[Path | str] = ()) -> Suite:
    return opening.load_suite(path, opening.suite_roots(Path(path), settings, allow_path))


def _targets(suite: Suite, how: Running, settings: Settings) -> Targets | None:
    given = how.get("targets")
    if given is not None and not isinstance(given, Path | str):
        return given if isinstance(given, Targets) else Targets.of(given)
    path, network = None if given is None else Path(given), how.get("allow_targets", False)
    return opening.open_targets(suite, path, settings, environment=how.get("allow_env"), network=network)


def _options(how: Running, settings: Settings, rows: Path | None) -> RunOptions:
    kept = ("allow_code", "workers", "timeout", "max_retries", "cache")
    plain: Any = {name: value for name, value in how.items() if name in kept}
    return RunOptions(
        **plain,
        test_ids=_several(how.get("test_ids", ())),
        tags=_several(how.get("tags", ())),
        targets=_several(how.get("target", ())),
        world_root=(lambda: settings.world_root) if is_world(settings.world_root) else None,
        settings=settings,
        keyed=rows is not None or how.get("on_result") is not None,
        written=() if rows is None else (rows,),
    )


def _several(names: Sequence[str] | str) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
