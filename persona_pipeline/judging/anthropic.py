"""The live judge of propositions: claims become questions, answers become verdicts."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from persona_pipeline.judging.answers import no_entries, verdicts_of
from persona_pipeline.judging.backend import AnthropicBackend
from persona_pipeline.judging.budget import Budget
from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.canaries import canaries_for, usage_of, without_compromised
from persona_pipeline.judging.collected import CollectedBackend
from persona_pipeline.judging.daily import daily_limit
from persona_pipeline.judging.injection import suspicious_entries
from persona_pipeline.judging.options import AnthropicOptions
from persona_pipeline.judging.prices import has_price
from persona_pipeline.judging.progress import Progress
from persona_pipeline.judging.prompt import PROMPT_VERSION, proposition_question
from persona_pipeline.judging.questions import Answer, Question
from persona_pipeline.judging.support import is_unsupported, unsupported
from persona_pipeline.judging.verdict import JudgeRequest, Usage, Verdict
from persona_pipeline.settings import Settings, get_settings
from persona_pipeline.store.engine import Store
from persona_pipeline.world.models import seed_from

__all__ = ["AnthropicBackend", "AnthropicJudge", "AnthropicOptions", "open_anthropic_judge", "questions_about"]


BackendT = TypeVar("BackendT", AnthropicBackend, CollectedBackend)


@dataclass(frozen=True)
class AnthropicJudge(Generic[BackendT]):
    """Judges propositions by asking a provider's model.

    Attributes:
        grouping: claims of one trajectory in one call; 1 keeps claims from colouring one another and is the default.
            Another grouping is another prompt, so it shares no cached judgments.
        mechanism: whom the calls are charged to.
    """

    backend: BackendT
    grouping: int = 1
    mechanism: str = "evaluation"

    @property
    def name(self) -> str:
        return self.backend.name + (f" grouped by {self.grouping}" if self.grouping > 1 else "")

    @property
    def live(self) -> bool:
        return True

    @property
    def model(self) -> str:
        return self.backend.options.model

    @property
    def prompt_version(self) -> str:
        return PROMPT_VERSION

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        """Return verdicts in the order of the requests. What has no entries is ``no_evidence``, without a call.

        A verdict none of whose quotes stands in the transcript is asked once more. Transcripts that hold text written for a judge
        are judged on claims with a known answer too (see ``canaries``).
        """
        verdicts = {
            index: no_entries(request) for index, request in enumerate(requests) if not request.trajectory.entries
        }
        rest = [index for index in range(len(requests)) if index not in verdicts]
        shown = [requests[index] for index in rest]
        canaries = canaries_for(shown)
        told = await self._ask([*shown, *(canary.request for canary in canaries)])
        told = await self._supported(shown, told[: len(shown)]) + told[len(shown) :]
        known = dict(zip(canaries, told[len(shown) :], strict=True))
        checked = without_compromised(shown, told[: len(shown)], known)
        if canaries:
            checked[0] = replace(checked[0], usage=checked[0].usage + usage_of(list(known.values())))
        verdicts |= dict(zip(rest, checked, strict=True))
        return [verdicts[index] for index in range(len(requests))]

    async def _ask(self, requests: Sequence[JudgeRequest], *, again: bool = False) -> list[Verdict]:
        asking = questions_about(
            requests,
            max_tokens=self.backend.options.max_tokens,
            grouping=self.grouping,
            mechanism=self.mechanism,
            again=again,
        )
        answers = await self.backend.ask([question for _, question in asking])
        verdicts: dict[int, Verdict] = {}
        for (places, _), answer in zip(asking, answers, strict=True):
            verdicts |= dict(zip(places, _verdicts(answer, [requests[place] for place in places]), strict=True))
        return [verdicts[place] for place in range(len(requests))]

    async def _supported(self, requests: Sequence[JudgeRequest], verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Ask once more for verdicts whose quotes all fail; what fails again is ``unscored(unsupported)``."""
        supported = list(verdicts)
        places = [place for place, verdict in enumerate(verdicts) if is_unsupported(verdict)]
        if not places:
            return supported
        told = await self._ask([requests[place] for place in places], again=True)
        for place, second in zip(places, told, strict=True):
            usage = verdicts[place].usage + second.usage
            failed = second.unscored is not None and not second.unscored.is_answer
            if failed or is_unsupported(second):
                why = f"asked again: {second.detail}" if failed else "asked twice"
                second = unsupported(verdicts[place], f"none of its quotes stands in the transcript ({why})")
            supported[place] = replace(second, usage=usage)
        return supported


def open_anthropic_judge(
    settings: Settings | None = None,
    *,
    store: Store | None = None,
    max_usd: float | None = None,
    judge: str | None = None,
    grouping: int | None = None,
    mechanism: str = "evaluation",
    fresh: bool = False,
    progress: Progress | None = None,
) -> AnthropicJudge[AnthropicBackend]:
    """Return the live judge of the settings.

    Args:
        judge: its provider; None: that of the settings, or Anthropic.
        grouping: claims of one transcript in one call; None: as the settings say.
        store: where judgments are cached; None: nothing is cached.
        max_usd: limit in dollars of all that this judge asks.
        fresh: ask anew what the store already answers.
        progress: hears of every answer.

    Raises:
        ConfigError: nobody offers such a judge; a key, a package or a setting is missing; there is a limit and no known price.
    """
    settings = settings or get_settings()
    options = AnthropicOptions.from_settings(settings, judge)
    options.require_usable()
    _import_for_good(options)
    daily = daily_limit(settings, store)
    backend = AnthropicBackend(
        options,
        cache=JudgmentCache(store, anew=fresh) if store else None,
        budget=None if max_usd is None and daily is None else Budget(max_usd, daily),
        progress=progress,
    )
    return AnthropicJudge(backend, grouping or settings.judge_grouping, mechanism)


def _import_for_good(options: AnthropicOptions) -> None:
    """Import what every call needs, and keep it from the garbage collector, whose walk over it stops all calls for 0.3 s."""
    import gc

    options.provider.sdk()
    has_price(options.model)
    gc.freeze()


def questions_about(
    requests: Sequence[JudgeRequest],
    *,
    max_tokens: int,
    grouping: int = 1,
    mechanism: str = "evaluation",
    again: bool = False,
) -> list[tuple[list[int], Question]]:
    """Return the questions that ask for verdicts on requests, each with the indexes of its requests in its order.

    Grouped questions hold at most ``grouping`` claims of one trajectory, persona and dimension, shuffled by content so
    that no claim always comes first.

    Args:
        again: the first answers quoted what is not in the transcript.
    """
    return [
        (
            group,
            proposition_question([requests[i] for i in group], max_tokens=max_tokens, mechanism=mechanism, again=again),
        )
        for group in _groups(requests, grouping)
    ]


def _groups(requests: Sequence[JudgeRequest], size: int) -> list[list[int]]:
    if size <= 1:
        return [[index] for index in range(len(requests))]
    alike: dict[tuple[object, ...], list[int]] = {}
    for index, request in enumerate(requests):
        shared = (request.dimension, request.trajectory, request.persona, request.sample, request.agent_id)
        alike.setdefault(shared, []).append(index)
    groups: list[list[int]] = []
    for indexes in alike.values():
        indexes.sort(key=lambda index: requests[index].key)
        random.Random(seed_from(*(requests[index].key for index in indexes))).shuffle(indexes)
        groups.extend(_chunks(indexes, requests, size))
    return groups


def _chunks(indexes: Iterable[int], requests: Sequence[JudgeRequest], size: int) -> list[list[int]]:
    chunks: list[list[int]] = []
    for index in indexes:
        name = requests[index].proposition_id
        for chunk in chunks:
            if len(chunk) < size and all(requests[other].proposition_id != name for other in chunk):
                chunk.append(index)
                break
        else:
            chunks.append([index])
    return chunks


def _verdicts(answer: Answer, requests: Sequence[JudgeRequest]) -> list[Verdict]:
    if answer.data is not None:
        return verdicts_of(
            answer.data, requests, model=answer.model, prompt_version=answer.prompt_version, usage=answer.usage
        )
    return [
        Verdict(
            request.proposition_id,
            unscored=answer.unscored,
            detail=answer.detail,
            model=answer.model,
            prompt_version=answer.prompt_version,
            usage=answer.usage if place == 0 else Usage(),
            # Of the transcript, whatever came of asking.
            injection_suspected=bool(suspicious_entries(request.trajectory)),
        )
        for place, request in enumerate(requests)
    ]
