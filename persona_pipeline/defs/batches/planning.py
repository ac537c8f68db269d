"""What would go out in message batches, and whether it may cost what it costs."""

import asyncio
from collections.abc import Sequence

import dagster as dg
import sqlalchemy as sa
from pydantic import Field

from persona_pipeline.defs.platform.resources import EvaluationSettings
from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation.run import planned_requests
from persona_pipeline.judging.batches import SUBMITTED, SUBMITTING, CollectedBackend
from persona_pipeline.judging.model.options import ModelOptions
from persona_pipeline.judging.money import daily_limit
from persona_pipeline.judging.verdict import Question
from persona_pipeline.store import Store, tables
from persona_pipeline.world import World


class BatchConfig(dg.Config):
    """What to judge in batches; window, samples and limit are the evaluation's."""

    agents: list[str] = Field(default=[], description="Agents to judge; empty: everybody with a persona file.")
    dimensions: list[str] = Field(default=[], description="Dimensions to judge; empty: all.")


def planned_questions(
    world: World, options: ModelOptions, evaluation: EvaluationSettings, config: BatchConfig
) -> list[Question]:
    """Return what an evaluation with these settings would ask.

    Raises:
        ConfigError: an unknown agent or dimension, or files that are not valid.
    """
    from persona_pipeline.judging.estimate import claim_questions

    requests = planned_requests(world, evaluation.request(world, config.agents or None, config.dimensions or None))
    return claim_questions(requests, options, evaluation.asked(world).grouping or world.settings.judge_grouping)


def require_affordable(world: World, options: ModelOptions, questions: Sequence[Question], limit: float | None) -> None:
    """Check the expected price of what has no answer yet: once it is submitted, a batch is paid for, and it counts today.

    Raises:
        ConfigError: it is above the limit (US dollars; None: there is none) or what is left of the day's, or unknown.
    """
    from persona_pipeline.judging.estimate import estimate_questions

    answers = asyncio.run(CollectedBackend(world.store, options).ask(questions))
    missing = [question for question, answer in zip(questions, answers, strict=True) if answer.data is None]
    usd = estimate_questions(missing, options, world.store).batch_usd
    if usd is None:
        raise ConfigError(
            f"no price is known for {options.model}, so PERSONA_MAX_USD and PERSONA_DAILY_USD cannot be kept; set them to 0"
        )
    if limit and usd.expected > limit:
        raise ConfigError(
            f"the batch is expected to cost ${usd.expected:.4f}, above the limit of ${limit:g}; "
            "raise PERSONA_MAX_USD, or name fewer agents or dimensions"
        )
    daily = daily_limit(world.settings, world.store)
    if daily and not daily.take(usd.expected):
        raise ConfigError(
            f"the batch is expected to cost ${usd.expected:.4f}, and ${daily.remaining:.4f} are left of today's "
            f"${daily.max_usd:g}; raise PERSONA_DAILY_USD, or submit it tomorrow"
        )


def count_open(store: Store) -> int:
    """Return how many batches are submitted, or being so, and not collected."""
    table = tables.judge_batches
    query = sa.select(sa.func.count()).select_from(table).where(table.c.status.in_((SUBMITTING, SUBMITTED)))
    with store.connect() as connection:
        return connection.execute(query).scalar_one()
