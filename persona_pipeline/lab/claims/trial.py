"""A test of claims: an agent's intact window and its broken ones are judged by the same claims, all together.

Faults break a character on purpose: functions of its messages, the same for the same seed.

A judgment that alone decides a result is repeated.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import regex
from pydantic import BaseModel, Field

from persona_pipeline.base.documents.yaml import load_document, validate_document
from persona_pipeline.base.errors import ConfigError, NothingError, did_you_mean, raise_problems
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.settings import Settings
from persona_pipeline.evaluation.plan import AgentPlan, Judged, judge_plans, plan_agent, planned
from persona_pipeline.evaluation.read import ALL_TIME, WorldReader
from persona_pipeline.guard.baselines.golden import BASELINES, find_baseline
from persona_pipeline.judging.estimate import estimate
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import Judge, JudgeRequest
from persona_pipeline.lab.claims.matrix import (
    ASSUMED_SD,
    BORROWED,
    ClaimCell,
    ClaimRow,
    FaultColumn,
    KillMatrix,
    good,
    needed_fall,
    noise_quantile,
    pooled_sd,
)
from persona_pipeline.scoring.plan import AgentCase
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult, add_usage
from persona_pipeline.scoring.style.likeness import by_speaker
from persona_pipeline.scoring.text.agreement import language_of
from persona_pipeline.world.models import Message
from persona_pipeline.world.propositions.loading import PROPOSITIONS, own_claims
from persona_pipeline.world.propositions.models import DIMENSIONS
from persona_pipeline.world.world import World

_DATA = Path(__file__).parent / "data"

# Scripts that put no spaces between words, as far as there are words of theirs here.
_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}ー]"
_WITHOUT_SPACES = regex.compile(_UNSPACED)


class NotApplicableError(Exception):
    """The fault cannot be planted in these messages; the message says why."""


class LanguageWords(BaseModel, extra="forbid", frozen=True):
    """Words and stock lines of a language.

    Attributes:
        boilerplate: neutral lines that any polite assistant could have sent.
        denials: sentences that take ``{line}`` back.
        assent: replaces a message without content; pause: replaces a dash.
        fillers: words of emphasis and interjections; in scripts without spaces only at the beginning of a clause.
    """

    language: str
    boilerplate: list[str] = Field(min_length=10)
    denials: list[str] = Field(min_length=3)
    assent: str
    pause: str
    fillers: list[str]


@dataclass(frozen=True)
class Material:
    """Material for breaking an agent's messages.

    Attributes:
        words: of the language of its messages; None: the language has no data.
        others: messages of each other agent, oldest first.
    """

    words: LanguageWords | None = None
    others: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def known_words(self) -> LanguageWords:
        """Return the words of the messages' language."""
        if self.words is None:
            known = ", ".join(words.language for words in all_words().values())
            raise NotApplicableError(
                f"there are no stock lines in the language of these messages; there are for {known}"
            )
        return self.words


@cache
def all_words() -> Mapping[str, LanguageWords]:
    """Return the words of each language that there are some of, by its code."""
    return {path.stem: validate_document(LanguageWords, load_document(path)) for path in sorted(_DATA.glob("*.yaml"))}


def words_of(texts: Sequence[str]) -> LanguageWords | None:
    """Return the words of the language of texts; None: it is not known, or has no data."""
    return all_words().get(language_of(texts)) if any(map(_LETTER.search, texts)) else None


def boilerplate(texts: Sequence[str], material: Material, generator: random.Random) -> list[str]:
    """Every message becomes a stock courtesy: the drift towards the model's default voice."""
    return _drawn(material.known_words().boilerplate, len(texts), generator)


def _drawn(lines: Sequence[str], count: int, generator: random.Random) -> list[str]:
    """Return this number of lines in random order; none is repeated before all are used."""
    found: list[str] = []
    while len(found) < count:
        found += generator.sample(lines, len(lines))
    return found[:count]


_FEWEST_LINES = 5


def borrowed(texts: Sequence[str], material: Material, generator: random.Random) -> list[str]:
    """Every message becomes a line that one other agent really said: personas mixed up, or a voice taken over."""
    spoken = {agent: [line for line in lines if line.strip()] for agent, lines in material.others.items()}
    agent = max(sorted(spoken), key=lambda name: len(spoken[name]), default=None)
    if agent is None or len(spoken[agent]) < min(_FEWEST_LINES, len(texts)):
        raise NotApplicableError("no other agent has said enough in its channels")
    return _drawn(spoken[agent], len(texts), generator)


_FIRST_SENTENCE = regex.compile(r"^.*?(?:[.!?؟](?=\s|$)|[。！？])|^.+", regex.DOTALL)
_LONGEST = 120


def contradiction(texts: Sequence[str], material: Material, generator: random.Random) -> list[str]:
    """In every second message the agent goes on as before and then takes back its message before that one."""
    denials = material.known_words().denials
    if len(texts) < 2:
        raise NotApplicableError("it said one thing only, and there is nothing to take back")
    first = generator.randrange(len(denials))
    found = list(texts)
    for turn, place in enumerate(range(1, len(texts), 2)):
        denial = denials[(first + turn) % len(denials)].replace("{line}", _line(texts[place - 1]))
        found[place] = texts[place] + " " * (_WITHOUT_SPACES.search(denials[0]) is None) + denial
    return found


def _line(text: str) -> str:
    sentence = _FIRST_SENTENCE.search(" ".join(text.split()))
    return (sentence[0] if sentence else "")[:_LONGEST].strip(" .!?¡¿؟。！？")


_ASIDE = regex.compile(r"\s*[(（][^()（）]*[)）]")
_PICTURE = regex.compile(r"[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f\u200d\u20e3♪♡☆]+")
_STRETCHED = regex.compile(r"(\p{L})\1{2,}|[〜～]+")
_SHOUTED = regex.compile(r"\b\p{Lu}{4,}\b")
_ENDING = regex.compile(r"\s*(?:[!?！？؟.。…]*[!！…][!?！？؟.。…]*|\.{2,}|[?？؟]{2,})")
# Spanish marks of a question stay where its end did.
_OPENING = regex.compile(r"¡|¿(?![^.]*\?)")
_QUOTES = regex.compile(r"[\"“”„«»「」『』*_~`]")
_DASH = regex.compile(r"\s+[-–—]+\s+|[–—―]+")
_SENTENCE = regex.compile(r"(^|[.?!。？؟]\s+)(¿?\p{Ll})")
_OPEN_END = regex.compile(r"[\p{L}\p{M}\p{N}]$")
_LETTER = regex.compile(r"\p{L}")
# Punctuation left around a full stop by a removed word.
_LEFT_OVER = regex.compile(r"(?<=[?？؟])[\s,،，、]*[.。]|[\s,،，、]*([.。])(?:[\s,،，、]*[.。])*")
_LOOSE = " ,.،。，、"


def flattened(texts: Sequence[str], material: Material, generator: random.Random) -> list[str]:
    """Emphasis, asides, emoji, shouting and fillers go, and every sentence ends in a full stop: what is said stays, how goes."""
    words = material.words
    fillers = regex.compile("(?!)")
    if words is not None:
        alternatives = "|".join(map(regex.escape, sorted(words.fillers, key=len, reverse=True)))
        begins, ends = (r"(?<=^|[\p{P}\s])", "") if _WITHOUT_SPACES.search(alternatives) else (r"\b", r"(?!\w)")
        fillers = regex.compile(rf"{begins}(?:{alternatives}){ends}[,!،，、]*\s*", regex.IGNORECASE)
    assent, pause = (words.assent, words.pause) if words else ("OK.", ", ")
    return [_flat(text, fillers, pause) or assent for text in texts]


def _flat(text: str, fillers: "regex.Pattern[str]", pause: str) -> str:
    unspaced = len(_WITHOUT_SPACES.findall(text)) * 2 > len(_LETTER.findall(text))
    stop = "。" if unspaced else "."
    text = _PICTURE.sub("", _ASIDE.sub("", text))
    text = _SHOUTED.sub(lambda match: match[0].capitalize(), _QUOTES.sub("", text))
    text = _STRETCHED.sub(lambda match: match[1] or "", text)
    text = _OPENING.sub("", _ENDING.sub(stop, _DASH.sub(pause, text)))
    text = _LEFT_OVER.sub(lambda match: match[1] or "", " ".join(fillers.sub("", text).split())).lstrip(_LOOSE)
    text = _SENTENCE.sub(lambda match: match[1] + match[2].upper(), text)
    return text + stop if _OPEN_END.search(text) else text


# Messages for each repeated line.
_STRETCH = 8


def repetition(texts: Sequence[str], material: Material, generator: random.Random) -> list[str]:
    """A few of its own messages replace all others: in character, but in a loop."""
    distinct = sorted({text for text in texts if text.strip()})
    if len(distinct) < 3:
        raise NotApplicableError("it said fewer than three different things")
    lines = generator.sample(distinct, max(1, round(len(distinct) / _STRETCH)))
    return [lines[place % len(lines)] for place in range(len(texts))]


# Breaks an agent's messages, oldest first, and returns as many. The first line of its docstring describes the fault. Raises
# ``NotApplicableError`` where the fault cannot be planted.
Operator = Callable[[Sequence[str], Material, random.Random], list[str]]

FAULTS: Mapping[str, Operator] = {
    "boilerplate": boilerplate,
    BORROWED: borrowed,
    "repetition": repetition,
    "flattened": flattened,
    "contradiction": contradiction,
}


# Fewer broken messages leave the agent itself: nothing that a claim should see.
FEWEST_CHANGED = 1 / 3
_MOST_LINES = 400


def material_of(case: AgentCase) -> Material:
    """Return the material for faults in an agent's messages. The others' lines come from before the window if possible."""
    texts = [message.text for message in case.messages]
    now = by_speaker(chain.from_iterable(case.channels.values()))
    before = case.history
    lines = {
        agent: said if len(said := before.get(agent, [])) >= len(texts) else [*said, *now.get(agent, [])]
        for agent in {*now, *before}
    }
    others = {agent: said[-_MOST_LINES:] for agent, said in sorted(lines.items()) if agent != case.agent_id}
    return Material(words_of(texts), others)


def break_case(case: AgentCase, name: str, seed: int = 0) -> FaultColumn:
    """Return a case with a fault in the agent's own messages of the window: ids, times, places and all others' stay as they are."""
    texts = [message.text for message in case.messages]
    generator = random.Random(case.seed("fault", name, str(seed)))
    fault = FaultColumn(name=name, what=(FAULTS[name].__doc__ or "").partition("\n")[0])
    try:
        broken = FAULTS[name](texts, material_of(case), generator)
    except NotApplicableError as error:
        return fault.model_copy(update={"why_not": str(error)})
    changed = sum(old != new for old, new in zip(texts, broken, strict=True)) / len(texts)
    if changed < FEWEST_CHANGED:
        why = f"it changes only {changed:.0%} of the messages"
        return fault.model_copy(update={"changed": changed, "why_not": why})
    planted = with_texts(case, dict(zip((m.id for m in case.messages), broken, strict=True)))
    return fault.model_copy(update={"changed": changed, "case": planted})


def with_texts(case: AgentCase, texts: Mapping[str, str]) -> AgentCase:
    """Return the case with other texts of some messages, by id."""

    def told(messages: Sequence[Message]) -> list[Message]:
        return [replace(m, text=texts[m.id]) if m.id in texts else m for m in messages]

    return replace(
        case,
        messages=told(case.messages),
        channels={channel: told(messages) for channel, messages in case.channels.items()},
    )


INTACT = "intact"
# Repeats of a kill that is the only one of its fault or claim.
CONFIRMATIONS = 2
# Degrees of freedom from which repeated judgments show how much the judge varies.
ENOUGH_REPEATS = 20


@dataclass(frozen=True)
class TrialRequest:
    """The faults to inject and the number of judgments.

    Attributes:
        dimensions: None: all that the agent has claims for.
        faults: None: all.
        window, as_of: the messages to break; None of both: those of the newest window of the baseline, if there is one, in which
            the agent was in character.
        samples: judgments of each claim on each window; three or more show their spread.
        seed: of the faults.
    """

    agent_id: str
    dimensions: Sequence[str] | None = None
    faults: Sequence[str] | None = None
    window: str | None = None
    as_of: datetime | None = None
    samples: int = 3
    seed: int = 0

    def chosen_faults(self) -> list[str]:
        """Return the faults asked for, in their fixed order."""
        for name in self.faults or ():
            if name not in FAULTS:
                hint = did_you_mean(name, FAULTS) or f"; known: {', '.join(FAULTS)}"
                raise ConfigError(f"unknown fault {name!r}{hint}")
        return [name for name in FAULTS if self.faults is None or name in self.faults]


@dataclass(frozen=True)
class Trial:
    """The questions of a test of claims.

    Attributes:
        windows: by name: ``intact`` and each planted fault.
        broken: all faults, also those that could not be planted.
        own: claims that should distinguish the agent from others, by dimension.
    """

    request: TrialRequest
    windows: Mapping[str, AgentPlan]
    broken: Sequence[FaultColumn]
    own: Mapping[str, frozenset[str]]

    @property
    def requests(self) -> list[JudgeRequest]:
        return [asked for plan in self.windows.values() for asked in plan.requests]

    def estimate(self, settings: Settings) -> str:
        """Return the estimated cost of judging the trial live, in words."""
        intact = self.windows[INTACT]
        claims = sum(len(intact.claims_of(name)) for name in intact.plans)
        shown = max(len(plan.requests) / max(len(intact.claims_of(name)), 1) for name, plan in intact.plans.items())
        more = round((claims + len(self.broken)) * CONFIRMATIONS * shown / self.request.samples)
        taken = estimate(self.requests, options=ModelOptions.from_settings(settings))
        return f"{taken}\nfaults that only one claim catches are judged twice more: at most {more} judgments, usually far fewer"


def plan_trial(world: World, request: TrialRequest) -> Trial:
    """Return the required judgments, without API calls; ConfigError: bad input, no claims of these dimensions, or no messages."""
    faults = request.chosen_faults()
    asked = EvaluationRequest(
        agents=[request.agent_id],
        dimensions=request.dimensions,
        samples=request.samples,
        **_broken_window(world, request),
    )
    inputs = WorldReader(world).inputs(asked)
    raise_problems(inputs.broken)
    intact = plan_agent(inputs, inputs.agents[0], asked)
    if not intact.plans:
        raise ConfigError(
            f"{request.agent_id} has no claims to test; write {PROPOSITIONS}/<dimension>/{request.agent_id}.yaml"
        )
    if not intact.case.messages:
        raise NothingError(f"{request.agent_id} said nothing in the window; choose another with --window or --as-of")
    broken = [break_case(intact.case, name, request.seed) for name in faults]
    windows = {INTACT: intact}
    windows |= {
        item.name: planned(replace(intact, case=item.case), intact.plans.keys())
        for item in broken
        if item.case is not None
    }
    return Trial(request, windows, broken, _own_claims(world, intact))


def _broken_window(world: World, request: TrialRequest) -> dict[str, Any]:
    if request.window is None and request.as_of is None:
        known = find_baseline(world.root / BASELINES, request.agent_id)
        dimensions = known.provenance.get("dimensions", {}).values() if known else ()
        spans = [item for own in dimensions for item in own.get("recordings", ())]
        if spans:
            newest = max(spans, key=lambda item: datetime.fromisoformat(item["end"]))
            start, end = newest["start"], datetime.fromisoformat(newest["end"])
            return {"window": ALL_TIME, "as_of": end} if start is None else {"since": start, "as_of": end}
    return {"window": request.window or world.settled(EvaluationRequest()).window, "as_of": request.as_of}


def _own_claims(world: World, plan: AgentPlan) -> dict[str, frozenset[str]]:
    """Return the claims about this agent: the claims in its own files, and all that are judged with its persona."""
    found = {}
    for dimension in plan.plans:
        stored = plan.sets[dimension].propositions
        if DIMENSIONS[dimension].by_action and stored is not None and stored.include_personas:
            found[dimension] = frozenset(plan.claims_of(dimension))
        else:
            found[dimension] = own_claims(world.root / PROPOSITIONS, dimension, plan.scope.agent_id)
    return found


Scores = Mapping[str, Mapping[str, DimensionEvaluation]]


def run_trial(trial: Trial, judge: Judge) -> KillMatrix:
    """Judge all windows of a trial in one call, repeat kills that are alone, and return the matrix."""
    judged = dict(zip(trial.windows, judge_plans(list(trial.windows.values()), judge), strict=True))
    scores = {name: item.dimensions() for name, item in judged.items()}
    again = _confirmed(trial, judge, judged, _rows(trial, scores)[0])
    for name, item in again.items():
        scores[name] |= item.dimensions()
    rows, sd, measured = _rows(trial, scores)
    intact = trial.windows[INTACT]
    window = intact.scope.window
    return KillMatrix(
        agent_id=trial.request.agent_id,
        window_start=window.start.isoformat() if window.start else None,
        window_end=window.end.isoformat(),
        messages=len(intact.case.messages),
        samples=trial.request.samples,
        seed=trial.request.seed,
        judge=judge.name,
        models=sorted({v.model for item in (*judged.values(), *again.values()) for v in item.verdicts if v.model}),
        judge_sd=sd,
        sd_measured=measured,
        claims=rows,
        faults=[item.model_copy(update={"case": None}) for item in trial.broken],
        usage=add_usage(cost for item in (*judged.values(), *again.values()) for cost in item.costs.values()),
        failed=sum((Counter(item.failed) for own in scores.values() for item in own.values()), Counter()),
        judgments=len(trial.requests) + sum(_more(trial, name, item) for name, item in again.items()),
    )


def _rows(trial: Trial, scores: Scores) -> tuple[list[ClaimRow], float, bool]:
    """Return every claim on every window, how much the judge varies, and whether that was measured."""
    judged = (item for dimensions in scores.values() for item in dimensions.values())
    known = pooled_sd(row for item in judged for row in item.propositions.values())
    if known is not None and known[1] < ENOUGH_REPEATS:
        known = None
    sd, degrees = known or (ASSUMED_SD, None)
    intact = trial.windows[INTACT]
    claims = [(name, claim) for name in intact.plans for claim in intact.claims_of(name)]
    compared = len(trial.windows) - 1
    quantile = noise_quantile(len(claims) * compared, degrees)

    def row(dimension: str, claim: str) -> ClaimRow:
        results = {name: dimensions[dimension].propositions[claim] for name, dimensions in scores.items()}
        first = results[INTACT]
        whole = _cell(first)

        return ClaimRow(
            dimension=dimension,
            id=claim,
            claim=first.claim,
            inverted=first.inverted,
            # An anti-pattern should hold for no agent.
            own=not first.inverted and claim in trial.own.get(dimension, ()),
            intact=whole,
            faults={
                name: _fallen(whole, _cell(result), sd, quantile) for name, result in results.items() if name != INTACT
            },
        )

    return [row(*claim) for claim in claims], sd, known is not None


def _confirmed(trial: Trial, judge: Judge, judged: Mapping[str, Judged], rows: Sequence[ClaimRow]) -> dict[str, Judged]:
    """Judge again the kills on which a finding rests, the only one of their fault or their claim: bad luck may be behind them."""
    by_fault = Counter(fault for row in rows for fault in row.kills)
    alone: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for fault in row.kills:
            if by_fault[fault] == 1 or len(row.kills) == 1:
                alone.setdefault(fault, {}).setdefault(row.dimension, []).append(row.id)
    plans = [trial.windows[fault].again(claims, CONFIRMATIONS) for fault, claims in alone.items()]
    return dict(zip(alone, judge_plans(plans, judge, [judged[fault] for fault in alone]), strict=True)) if plans else {}


def _more(trial: Trial, name: str, again: Judged) -> int:
    first = trial.windows[name].plans
    return len(again.plan.requests) - sum(len(first[dimension].requests) for dimension in again.plan.plans)


def _cell(result: PropositionResult) -> ClaimCell:
    score = middle = None
    if result.unscored is None:
        score = None if result.raw is None else good(result, result.raw)
        middle = good(result, median(result.samples)) if result.samples else None
    return ClaimCell(score=score, unscored=result.unscored, judgments=len(result.samples), middle=middle)


def _fallen(before: ClaimCell, now: ClaimCell, sd: float, quantile: float) -> ClaimCell:
    needed = needed_fall(sd, quantile, before.judgments, now.judgments or before.judgments)
    fall = before.score - now.score if before.score is not None and now.score is not None else None
    middle = before.middle - now.middle if before.middle is not None and now.middle is not None else None
    return now.model_copy(update={"fall": fall, "middle_fall": middle, "needed": needed})
