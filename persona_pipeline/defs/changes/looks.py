"""What a sensor has recorded counts once the runs it led to are certain.

Dagster writes a tick's observations before it notes the runs to start, and a daemon may die in between: the versions would look
as if they had been acted upon. So every look has a number, which its observations and its runs carry, and the sensor's cursor,
which Dagster writes in one go with the runs to start, is the number of the last look that came that far.
"""

from collections.abc import Collection, Iterator
from datetime import datetime

import dagster as dg

from persona_pipeline.defs.platform.run_tags import LOOK

_AT_ONCE = 500


def last_look(cursor: str | None) -> int:
    """Return the number in a cursor; 0: no look came as far as its runs."""
    return int(cursor) if cursor and cursor.isdigit() else 0


def next_look(last: int, at: datetime) -> int:
    """Return the number of a look: its time in milliseconds, and more than the last one's even if a clock was set back."""
    return max(int(at.timestamp() * 1000), last + 1)


def look_of(observation: dg.AssetObservation) -> int | None:
    """Return the look that recorded an observation; None: no look of a sensor did."""
    number = observation.tags.get(LOOK, "")
    return int(number) if number.isdigit() else None


def unfinished_looks(instance: dg.DagsterInstance, key: dg.AssetKey, last: int) -> dict[str | None, int]:
    """Return the newest look after the last finished one that observed each partition of a source; usually there is none."""
    found: dict[str | None, int] = {}
    for observation in _newest_first(instance, key):
        look = look_of(observation)
        if look is None or look <= last:
            break
        found.setdefault(observation.partition, look)
    return found


def requested_runs(instance: dg.DagsterInstance, looks: Collection[int]) -> Iterator[tuple[int, dg.DagsterRun]]:
    """Yield the runs these looks led to all the same: a tick that fails half way has started some of them."""
    if looks:
        numbers = [str(look) for look in sorted(looks)]
        for record in instance.get_run_records(dg.RunsFilter(tags={LOOK: numbers})):
            yield int(record.dagster_run.tags[LOOK]), record.dagster_run


def _newest_first(instance: dg.DagsterInstance, key: dg.AssetKey) -> Iterator[dg.AssetObservation]:
    # Mostly the first one says that there is nothing to do.
    cursor, limit, more = None, 1, True
    while more:
        found = instance.fetch_observations(key, limit=limit, cursor=cursor)
        for record in found.records:
            if record.asset_observation is not None:
                yield record.asset_observation
        cursor, limit, more = found.cursor, _AT_ONCE, found.has_more
