"""Judging at half the price: claims go out in message batches, whose answers an evaluation then finds in the store."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import dagster as dg
import sqlalchemy as sa
from pydantic import Field

from persona_pipeline.defs import metadata, run_tags
from persona_pipeline.defs.failures import known_failures
from persona_pipeline.defs.resources import EvaluationSettings, WorldResource
from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation.run import RunOptions, planned_requests
from persona_pipeline.judging import batches as message_batches
from persona_pipeline.judging.anthropic import questions_about
from persona_pipeline.judging.batch_records import SUBMITTED, SUBMITTING, BatchSummary
from persona_pipeline.judging.client import AnthropicOptions
from persona_pipeline.judging.collected import CollectedBackend
from persona_pipeline.judging.questions import Question
from persona_pipeline.reporting.text import one_line
from persona_pipeline.settings import get_settings
from persona_pipeline.store import Store, tables
from persona_pipeline.world import World

POLL_SECONDS = 300
API_RETRIES, API_SECONDS = 2, 60.0
_MOST_TEXT = 300
_UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
]


class BatchConfig(dg.Config):
    """What to judge in batches; window, samples and limit are the evaluation's."""

    agents: list[str] = Field(default=[], description="Agents to judge; empty: everybody with a persona file.")
    dimensions: list[str] = Field(default=[], description="Dimensions to judge; empty: all.")


@contextmanager
def api_failures() -> Iterator[None]:
    """Turn an overloaded or unreachable API into a retry, which bills nothing twice, and a refusal into a failure that says why."""
    import anthropic

    try:
        yield
    except anthropic.APIStatusError as error:
        if error.status_code in (408, 429) or error.status_code >= 500:
            raise dg.RetryRequested(max_retries=API_RETRIES, seconds_to_wait=API_SECONDS) from error
        said = one_line(error.message, _MOST_TEXT)
        raise dg.Failure(f"the API refused (HTTP {error.status_code}): {said}", allow_retries=False) from error
    except anthropic.APIConnectionError as error:
        raise dg.RetryRequested(max_retries=API_RETRIES, seconds_to_wait=API_SECONDS) from error


@dg.op
def submit_planned_requests(
    context: dg.OpExecutionContext, world: WorldResource, evaluation: EvaluationSettings, config: BatchConfig
) -> None:
    """Submit every judgment an evaluation would ask for that is neither answered nor under way."""
    with known_failures(), api_failures():
        opened = world.open()
        options = AnthropicOptions.from_settings(get_settings())
        questions = planned_questions(opened, options, evaluation, config)
        if evaluation.max_usd:
            require_affordable(opened.store, options, questions, evaluation.max_usd)
        done = message_batches.submit_batch(opened.store, options, questions)
    if done.uncertain:
        context.log.warning(
            f"{done.uncertain} submissions had no answer; collect_batches finds out what became of them"
        )
    context.add_output_metadata(
        {
            "judgments": len(questions),
            "submitted": done.submitted,
            "answered_before": done.cached,
            "under_way": done.waiting,
            "uncertain_submissions": done.uncertain,
            "batches": ", ".join(done.batch_ids) or "none",
        }
    )


@dg.op
def collect_ended_batches(context: dg.OpExecutionContext, world: WorldResource) -> None:
    """Bring the answers of ended batches into the store."""
    with known_failures(), api_failures():
        opened = world.open()
        summaries = message_batches.collect_batches(opened.store, AnthropicOptions.from_settings(get_settings()))
    for summary in summaries:
        for reason, count in summary.reasons.items():
            context.log.warning(
                f"{summary.batch_id}: {count} judgments are unscored ({reason}); submit_batches submits them again"
            )
    context.add_output_metadata({**summary_metadata(summaries), "still_open": count_open(opened.store)})


@dg.job(
    tags={run_tags.JUDGE: "anthropic, in batches"},
    description="Submits what an evaluation would ask the judge as message batches, at half the price. Run twice, it bills once.",
)
def submit_batches() -> None:
    submit_planned_requests()


@dg.job(
    tags={run_tags.JUDGE: "anthropic, in batches"},
    description="Collects message batches that have ended; an evaluation with the judge anthropic then pays for nothing in them.",
)
def collect_batches() -> None:
    collect_ended_batches()


@dg.sensor(
    job=collect_batches,
    minimum_interval_seconds=POLL_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Collects message batches while there are open ones. Collecting costs nothing.",
)
def open_batches(context: dg.SensorEvaluationContext, world: WorldResource) -> dg.RunRequest | dg.SkipReason:
    """Ask for a collection when a batch is open and none is under way."""
    count = count_open(world.open().store)
    if not count:
        return dg.SkipReason("no batch is open")
    under_way = dg.RunsFilter(job_name=collect_batches.name, statuses=_UNFINISHED)
    if context.instance.get_runs_count(under_way):
        return dg.SkipReason("a collection is under way")
    return dg.RunRequest(tags=run_tags.request_tags(f"{count} open batches"))


def planned_questions(
    world: World, options: AnthropicOptions, evaluation: EvaluationSettings, config: BatchConfig
) -> list[Question]:
    """Return what an evaluation with these settings would ask.

    Raises:
        ConfigError: an unknown agent or dimension, or files that are not valid.
    """
    requests = planned_requests(
        world,
        RunOptions(
            agents=config.agents or None,
            dimensions=config.dimensions or None,
            window=evaluation.window,
            as_of=evaluation.window_end,
            samples=evaluation.samples,
        ),
    )
    # Without evidence there is nothing to ask.
    asked = [request for request in requests if request.trajectory.entries]
    return [question for _, question in questions_about(asked, max_tokens=options.max_tokens)]


def require_affordable(store: Store, options: AnthropicOptions, questions: Sequence[Question], limit: float) -> None:
    """Check the expected price of what has no answer yet: once it is submitted, a batch is paid for.

    Raises:
        ConfigError: it is above the limit (US dollars), or unknown.
    """
    from persona_pipeline.judging.estimate import estimate_questions

    answers = asyncio.run(CollectedBackend(store, options).ask(questions))
    missing = [question for question, answer in zip(questions, answers, strict=True) if answer.data is None]
    expected = estimate_questions(missing, options).batch_usd
    if expected is None:
        raise ConfigError(f"no price is known for {options.model}, so PERSONA_MAX_USD cannot be kept; set it to 0")
    if expected > limit:
        raise ConfigError(
            f"the batch is expected to cost ${expected:.4f}, above the limit of ${limit:g}; "
            "raise PERSONA_MAX_USD, or name fewer agents or dimensions"
        )


def count_open(store: Store) -> int:
    """Return how many batches are submitted, or being so, and not collected."""
    table = tables.judge_batches
    query = sa.select(sa.func.count()).select_from(table).where(table.c.status.in_((SUBMITTING, SUBMITTED)))
    with store.connect() as connection:
        return connection.execute(query).scalar_one()


def summary_metadata(summaries: Sequence[BatchSummary]) -> metadata.Metadata:
    """Return how batches ended: numbers, and a row a batch."""
    rows = [
        {
            "batch": item.batch_id,
            "answered": item.answered,
            "unscored": ", ".join(f"{reason} {count}" for reason, count in item.reasons.items()) or "none",
            "tokens": item.input_tokens + item.output_tokens,
            "usd": "unknown" if item.usd is None else f"{item.usd:.4f}",
        }
        for item in summaries
    ]
    found: metadata.Metadata = {
        "collected": len(summaries),
        "answered": sum(item.answered for item in summaries),
        "unscored": sum(len(item.unscored) for item in summaries),
        "batches": metadata.table(rows, ("batch", "answered", "unscored", "tokens", "usd")),
    }
    prices = [item.usd for item in summaries if item.usd is not None]
    return found | ({"usd": sum(prices)} if len(prices) == len(summaries) else {})
