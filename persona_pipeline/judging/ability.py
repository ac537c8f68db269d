"""What ``doctor`` found of judges: whether they can judge at all. Kept in the store, so that nobody believes one that cannot."""

from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.store.engine import Store
from persona_pipeline.store.tables import judgments
from persona_pipeline.world.canonical import content_hash

ABILITY = "ability"


@dataclass(frozen=True)
class Abilities:
    """What the store knows of judges by model and prompt version."""

    store: Store

    def unable(self, models: Iterable[str], prompt_versions: Iterable[str]) -> list[str]:
        """Return those of these models that were found unable to judge with one of these prompts."""
        prompts = list(prompt_versions)
        asked = {_key(model, prompt): model for model in models for prompt in prompts}
        if not asked:
            return []
        query = sa.select(judgments.c.key, judgments.c.answer).where(judgments.c.key.in_(asked))
        with self.store.connect() as connection:
            rows = connection.execute(query).all()
        return sorted({asked[key] for key, answer in rows if not answer.get("able", True)})

    def note(self, models: Iterable[str], prompt_version: str, *, able: bool) -> None:
        """Keep what was found of a model, under the name it was asked by and the one it answered with."""
        for model in set(models):
            key = _key(model, prompt_version)
            JudgmentCache(self.store).note(key, ABILITY, model, prompt_version, {"able": able})


def _key(model: str, prompt_version: str) -> str:
    return content_hash([ABILITY, model, prompt_version])
