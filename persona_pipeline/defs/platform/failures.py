"""Which errors end a step for good, and which are worth another try."""

from collections.abc import Mapping

import dagster as dg
from sqlalchemy.exc import OperationalError

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.judging.verdict import Judge, Unscored
from persona_pipeline.reporting.text import markdown_code

# A locked SQLite file, a Postgres server that restarts: gone in seconds or not at all.
DATABASE_RETRIES, DATABASE_SECONDS = 3, 5.0
# Overload and network: the judgments that were answered are in the cache, so a retry pays for the others only.
JUDGE_RETRIES, JUDGE_SECONDS = 2, 30.0
_PASSING = (Unscored.API_ERROR, Unscored.TIMEOUT)


class known_failures:  # noqa: N801 - reads as a clause
    """Turns bad input into a failure that is not retried and shows file and line, and a lost database into a retry.

    Everything else is a defect: it fails at once, with its trace.
    """

    def __init__(self, *, retry: bool = True) -> None:
        self._retry = retry

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ConfigError):
            raise bad_input(error) from error
        if self._retry and isinstance(error, OperationalError):
            raise dg.RetryRequested(max_retries=DATABASE_RETRIES, seconds_to_wait=DATABASE_SECONDS) from error


def bad_input(error: ConfigError) -> dg.Failure:
    """Return the failure that shows every problem with its place."""
    listed = "\n".join(f"- {markdown_code(str(problem))}" for problem in error.problems)
    shown = {"problems": dg.MetadataValue.md(listed)}
    return dg.Failure(str(error), metadata=shown, allow_retries=False)


def retry_unanswered(reasons: Mapping[str, int], judge: Judge, retry_number: int) -> None:
    """Raise ``RetryRequested`` when a live judge was overloaded or out of reach; refusals, bad answers, budgets stay as they are.

    ``reasons``: how many judgments are missing, by reason.
    """
    unanswered = sum(reasons.get(reason.value, 0) for reason in _PASSING)
    if judge.live and unanswered and retry_number < JUDGE_RETRIES:
        raise dg.RetryRequested(max_retries=JUDGE_RETRIES, seconds_to_wait=JUDGE_SECONDS * 2**retry_number)
