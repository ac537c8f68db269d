"""Judging at half the price: claims go out in message batches, whose answers an evaluation then finds in the store."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import dagster as dg

from persona_pipeline.defs.batches.planning import BatchConfig, count_open, planned_questions, require_affordable
from persona_pipeline.defs.pictures import metadata
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import EvaluationSettings, WorldResource
from persona_pipeline.judging import batches as message_batches
from persona_pipeline.judging.batches import BatchSummary
from persona_pipeline.judging.model.options import ModelOptions
from persona_pipeline.reporting.text import one_line

API_RETRIES, API_SECONDS = 2, 60.0
_MOST_TEXT = 300
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
        said = one_line(error.message, _MOST_TEXT)
        raise dg.Failure(f"the API refused (HTTP {error.status_code}): {said}", allow_retries=False) from error
    except anthropic.APIConnectionError as error:
        raise dg.RetryRequested(max_retries=API_RETRIES, seconds_to_wait=API_SECONDS) from error


def build_submit_batches(place: Place) -> dg.JobDefinition:
    """Return the job that submits batches."""

    @dg.op(name=place.name("submit_planned_requests"))
    @place.bound
    def submit_planned_requests(
        context: dg.OpExecutionContext, world: WorldResource, evaluation: EvaluationSettings, config: BatchConfig
    ) -> None:
        """Submit every judgment an evaluation would ask for that is neither answered nor under way."""
        with known_failures(), api_failures():
            opened = world.open()
            options = ModelOptions.from_settings(opened.settings)
            questions = planned_questions(opened, options, evaluation, config)
            limit = evaluation.asked(opened).max_usd
            if limit or opened.settings.daily_usd:
                require_affordable(opened, options, questions, limit)
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

    submit = submit_planned_requests.alias("submit_planned_requests")

    @dg.job(
        name=place.name("submit_batches"),
        tags=_TAGS,
        executor_def=place.executor,
        description="Submits what an evaluation would ask the judge as message batches, at half the price. Run twice, it bills "
        "once.",
    )
    def submit_batches() -> None:
        submit()

    return submit_batches


def build_collect_batches(place: Place) -> dg.JobDefinition:
    """Return the job that collects batches."""

    @dg.op(name=place.name("collect_ended_batches"))
    @place.bound
    def collect_ended_batches(context: dg.OpExecutionContext, world: WorldResource) -> None:
        """Bring the answers of ended batches into the store."""
        with known_failures(), api_failures():
            opened = world.open()
            summaries = message_batches.collect_batches(opened.store, ModelOptions.from_settings(opened.settings))
        for summary in summaries:
            for reason, count in summary.reasons.items():
                context.log.warning(
                    f"{summary.batch_id}: {count} judgments are unscored ({reason}); submit_batches submits them again"
                )
        context.add_output_metadata({**summary_metadata(summaries), "still_open": count_open(opened.store)})

    collect = collect_ended_batches.alias("collect_ended_batches")

    @dg.job(
        name=place.name("collect_batches"),
        tags=_TAGS,
        executor_def=place.executor,
        description="Collects message batches that have ended; an evaluation with the judge anthropic then pays for nothing in "
        "them.",
    )
    def collect_batches() -> None:
        collect()

    return collect_batches


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
