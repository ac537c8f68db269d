"""What judges said, as rows: answers by what was judged, and which judges were found unable to judge."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from persona_pipeline.base.database.engine import MOST_NAMED, Store
from persona_pipeline.base.database.tables import judgments


@dataclass(frozen=True)
class KeptAnswers:
    """What was paid for once, to be looked up."""

    store: Store

    def keys(self, kind: str) -> dict[str, list[str]]:
        """Return the keys of answers of a kind by what they are about, in the order in which they were given."""
        query = sa.select(judgments.c.subject_key, judgments.c.key).where(judgments.c.kind == kind)
        found: dict[str, list[str]] = defaultdict(list)
        with self.store.connect() as connection:
            for subject_key, key in connection.execute(query.order_by(judgments.c.created_at, judgments.c.key)):
                found[subject_key].append(key)
        return dict(found)

    def rows(self, keys: Sequence[str]) -> Iterator[sa.Row]:
        """Yield ``key``, ``answer`` (text as it is stored), ``model`` and ``prompt_version`` of the answers that are there."""
        columns = (judgments.c.key, sa.cast(judgments.c.answer, sa.Text).label("answer"))
        query = sa.select(*columns, judgments.c.model, judgments.c.prompt_version)
        with self.store.connect() as connection:
            for start in range(0, len(keys), MOST_NAMED):
                yield from connection.execute(query.where(judgments.c.key.in_(keys[start : start + MOST_NAMED]))).all()


def notes(store: Store, kind: str) -> Sequence[sa.Row]:
    """Return ``model``, ``prompt_version`` and ``answer`` of everything of a kind."""
    query = sa.select(judgments.c.model, judgments.c.prompt_version, judgments.c.answer)
    with store.connect() as connection:
        return connection.execute(query.where(judgments.c.kind == kind)).all()
