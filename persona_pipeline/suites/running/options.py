"""How a suite is run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from persona_pipeline.suites.asserts.context import DEFAULT_TIMEOUT
from persona_pipeline.suites.results.suite_result import TestResult


@dataclass(frozen=True)
class RunOptions:
    """How a suite is run.

    Attributes:
        allow_code: code judges, code aggregators, prompt scripts, workspace hooks and cli targets may run.
        test_ids: globs; a test runs if one matches. Empty: all.
        tags: a test runs if it or its suite has one of them. Empty: all.
        only: ids of tests that may run; None: all. None of them is no mistake.
        shard: which part of the tests, and of how many, such as (2, 4); None: all.
        targets: who answers instead of those the suite names.
        workers: tests at once; None: what the target says, else 1, and 20 of recorded answers where a judge grades them.
        timeout: seconds one attempt may take, answer and grading together.
        max_retries: further tries after a failure that can pass.
        cache: answer from earlier answers; None: as the suite says.
        cache_folder, workspace_folder: where answers and workspaces are kept; by default ``.persona`` at the top of the suite's
            repository.
        keep_workspaces: also those of tests that pass.
        world_root: gives the world's folder; asked only by persona asserts.
        keyed: results carry the digest of what they rest on, so that a later run can go on from them; None: where they are heard
            one by one.
        written: files that the run writes: no result rests on them.
        earlier: rows of an interrupted run: what they finished is not run again.
        clock: the time that results carry.
    """

    allow_code: bool = False
    test_ids: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    only: frozenset[str] | None = None
    shard: tuple[int, int] | None = None
    targets: tuple[str, ...] = ()
    workers: int | None = None
    timeout: float = DEFAULT_TIMEOUT
    max_retries: int = 2
    cache: bool | None = None
    cache_folder: Path | None = None
    workspace_folder: Path | None = None
    keep_workspaces: bool = False
    world_root: Callable[[], Path] | None = None
    keyed: bool | None = None
    written: tuple[Path, ...] = ()
    earlier: Sequence[TestResult] = ()
    clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC), repr=False)

    @property
    def may_leave_none(self) -> bool:
        """Whether it is no mistake when no test is left: a shard may be empty, and nothing may have changed."""
        return self.shard is not None or self.only is not None
