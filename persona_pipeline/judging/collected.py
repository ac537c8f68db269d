"""Answers that message batches brought: nothing is asked, what is missing is unscored with the reason the batch gave."""

from collections.abc import Sequence
from dataclasses import dataclass

from persona_pipeline.judging import batch_records as records
from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.options import AnthropicOptions
from persona_pipeline.judging.questions import Answer, Question
from persona_pipeline.judging.request import RequestStyle, prefix_of, request_key
from persona_pipeline.judging.verdict import Unscored
from persona_pipeline.store.engine import Store


@dataclass(frozen=True)
class CollectedBackend:
    """Answers questions from the judgments in the store, whether a batch or a call brought them."""

    store: Store
    options: AnthropicOptions

    live = True

    @property
    def name(self) -> str:
        return self.options.name

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        style = RequestStyle(self.options.model, self.options.effort)
        endpoint, provider = self.options.endpoint, self.options.provider
        keys = [
            request_key(prefix_of(style, question), question, endpoint, provider=provider) for question in questions
        ]
        answers = JudgmentCache(self.store).find(zip(keys, questions, strict=True))
        with self.store.connect() as connection:
            failed = records.unscored_in(records.read(connection, records.COLLECTED))
            waiting = {
                request.key
                for record in records.read(connection, records.SUBMITTING, records.SUBMITTED)
                for request in record.requests
            }
        return [answers.get(key) or _missing(key, waiting, failed) for key in keys]


def _missing(key: str, waiting: set[str], failed: dict[str, tuple[Unscored, str]]) -> Answer:
    if key in waiting:
        return Answer(unscored=Unscored.TIMEOUT, detail="its batch has not been collected yet")
    if key in failed:
        reason, detail = failed[key]
        return Answer(unscored=reason, detail=f"{detail}; submit it again")
    return Answer(unscored=Unscored.UNRECORDED, detail="it has not been submitted in a batch")
