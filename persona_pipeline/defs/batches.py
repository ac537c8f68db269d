"""Judging at half the price, in message batches: what would go out, the assets that submit and collect, the schedule that looks."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import dagster as dg
import sqlalchemy as sa
from pydantic import Field

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.defs import metadata
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.place import EVALUATION, WORLD, Place
from persona_pipeline.defs.platform.resources import evaluation_of, known_failures, world_of
from persona_pipeline.evaluation.estimate import questions_of
from persona_pipeline.judging import batches as message_batches
from persona_pipeline.judging.batches import SUBMITTED, SUBMITTING, BatchSummary, CollectedBackend
from persona_pipeline.judging.money import daily_limit
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import Question
from persona_pipeline.reporting.text import one_line
from persona_pipeline.world.world import World


class BatchConfig(dg.Config):
    """What to judge in batches; window, samples and limit are the evaluation's."""

    agents: list[str] = Field(default=[], description="Agents to judge; empty: everybody with a persona file.")
    dimensions: list[str] = Field(default=[], description="Dimensions to judge; empty: all.")


def require_affordable(world: World, options: ModelOptions, questions: Sequence[Question], limit: float | None) -> None:
    """Check the expected price of the unanswered questions: a submitted batch is paid for, and counts today.

    Raises ``ConfigError``: the price is unknown, above the limit (US dollars; None: no limit) or above the rest of today's limit.
    """
    from persona_pipeline.judging.estimate import estimate

    answers = asyncio.run(CollectedBackend(world.store, options).ask(questions))
    missing = [question for question, answer in zip(questions, answers, strict=True) if answer.data is None]
    usd = estimate([], options=options, store=world.store, also=missing).batch_usd
    if usd is None:
        raise ConfigError(
            f"no price is known for {options.model}, so PERSONA_MAX_USD and PERSONA_DAILY_USD cannot be kept; set them to 0"
        )
    if limit and usd > limit:
        raise ConfigError(
            f"the batch is expected to cost ${usd:.4f}, above the limit of ${limit:g}; "
            "raise PERSONA_MAX_USD, or name fewer agents or dimensions"
        )
    daily = daily_limit(world.settings, world.store)
    if daily and not daily.take(usd):
        raise ConfigError(
            f"the batch is expected to cost ${usd:.4f}, and ${daily.remaining:.4f} are left of today's "
            f"${daily.max_usd:g}; raise PERSONA_DAILY_USD, or submit it tomorrow"
        )


def count_open(store: Store) -> int:
    """Return how many batches are submitted, or being so, and not collected."""
    table = tables.judge_batches
    query = sa.select(sa.func.count()).select_from(table).where(table.c.status.in_((SUBMITTING, SUBMITTED)))
    return store.value(query)


API_RETRIES, API_SECONDS = 2, 60.0
_TAGS = {run_tags.JUDGE: "anthropic, in batches"}


@contextmanager
def api_failures() -> Iterator[None]:
    """Turn an overloaded or unreachable API into a retry, which bills nothing twice, and a refusal into a failure that says why."""
    import anthropic

    try:
        yield
    except anthropic.APIStatusError as error:
        if error.status_code in (408, 429) or error.status_code >= 500:
            raise dg.RetryRequested(max_retries=API_RETRIES, seconds_to_wait=API_SECONDS) from error
        said = one_line(error.message, metadata.MOST_TEXT)
        raise dg.Failure(f"the API refused (HTTP {error.status_code}): {said}", allow_retries=False) from error
    except anthropic.APIConnectionError as error:
        raise dg.RetryRequested(max_retries=API_RETRIES, seconds_to_wait=API_SECONDS) from error


def summary_metadata(summaries: Sequence[BatchSummary]) -> metadata.Metadata:
    """Return how batches ended, in numbers; without a price where that of a batch is unknown."""
    prices = [item.usd for item in summaries if item.usd is not None]
    return {
        "collected": len(summaries),
        "answered": sum(item.answered for item in summaries),
        "unscored": sum(len(item.unscored) for item in summaries),
        "batches": ", ".join(item.batch_id for item in summaries) or "none",
        **({"usd": sum(prices)} if len(prices) == len(summaries) else {}),
    }


POLL_CRON, COLLECTING = "*/5 * * * *", "collected_batches"


def build_batches(place: Place) -> dg.Definitions:
    """Return the two assets of message batches, and the schedule that collects finished ones."""

    @place.asset("submitted_batches", "batches", kinds={"anthropic"}, uses=[WORLD, EVALUATION], op_tags=_TAGS)
    def submitted_batches(context: dg.AssetExecutionContext, config: BatchConfig) -> dg.MaterializeResult:
        """Submits what an evaluation would ask the judge, and is neither answered nor under way, at half the price. Made twice, it
        bills once."""
        with known_failures(), api_failures():
            opened = world_of(place, context)
            options = ModelOptions.from_settings(opened.settings)
            evaluation = evaluation_of(place, context)
            request = evaluation.request(opened, config.agents or None, config.dimensions or None)
            questions = questions_of(opened, options, request)
            if request.max_usd or opened.settings.daily_usd:
                require_affordable(opened, options, questions, request.max_usd)
            done = message_batches.submit_batch(opened.store, options, questions)
        if done.uncertain:
            context.log.warning(
                f"{done.uncertain} submissions had no answer; collected_batches finds out what became of them"
            )
        return dg.MaterializeResult(
            metadata={
                "judgments": len(questions),
                "submitted": done.submitted,
                "answered_before": done.cached,
                "under_way": done.waiting,
                "uncertain_submissions": done.uncertain,
                "batches": ", ".join(done.batch_ids) or "none",
            }
        )

    @place.asset("collected_batches", "batches", kinds={"anthropic", "sql"}, op_tags=_TAGS)
    def collected_batches(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        """Brings the answers of ended batches into the store; an evaluation then pays for nothing in them."""
        with known_failures(), api_failures():
            opened = world_of(place, context)
            summaries = message_batches.collect_batches(opened.store, ModelOptions.from_settings(opened.settings))
        for summary in summaries:
            for reason, count in summary.reasons.items():
                context.log.warning(
                    f"{summary.batch_id}: {count} judgments are unscored ({reason}); submitted_batches submits them again"
                )
        still_open = count_open(opened.store)
        return dg.MaterializeResult(metadata={**summary_metadata(summaries), "still_open": still_open})

    @dg.schedule(
        name=place.name("open_batches"),
        target=collected_batches,
        cron_schedule=POLL_CRON,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        required_resource_keys=place.names([WORLD]),
        description="Collects message batches while there are open ones. Collecting costs nothing.",
    )
    def open_batches(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        count = count_open(world_of(place, context).store)
        if not count:
            return dg.SkipReason("no batch is open")
        if run_tags.is_under_way(context.instance, COLLECTING):
            return dg.SkipReason("a collection is under way")
        return dg.RunRequest(tags=run_tags.request_tags(f"{count} open batches", asked=COLLECTING))

    return dg.Definitions(assets=[submitted_batches, collected_batches], schedules=[open_batches])
