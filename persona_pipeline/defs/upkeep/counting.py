"""Once a day, what is counted as messages are written is compared with all of them."""

import dagster as dg

from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import WorldResource
from persona_pipeline.world.counting import check_counts

_MOST_NAMED = 20


def build_check_message_counts(place: Place) -> dg.JobDefinition:
    """Return the job that checks the counts."""

    @dg.op(name=place.name("count_all_messages"))
    @place.bound
    def count_all_messages(context: dg.OpExecutionContext, world: WorldResource) -> None:
        """Count every message, agent by agent, and mend what differs from what was counted as they came."""
        with known_failures():
            differing = check_counts(world.open().store)
        for agent_id, days in list(differing.items())[:_MOST_NAMED]:
            context.log.warning(f"{agent_id}: what was said on {days} days was counted wrongly; it is mended")
        context.add_output_metadata({"agents_mended": len(differing), "days_mended": sum(differing.values())})

    count = count_all_messages.alias("count_all_messages")

    @dg.job(
        name=place.name("check_message_counts"),
        executor_def=place.executor,
        description="Compares the counts of what agents said, which triggers in the store keep, with all messages, and mends what "
        "differs: the next look evaluates those agents. Judges nothing.",
    )
    def check_message_counts() -> None:
        count()

    return check_message_counts
