"""Learns an agent's voice from its history and how high the sum may rise while the agent is itself, and keeps both in the store."""

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import SequenceMatcher
from functools import cache
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.engine import Connection

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, among, upsert
from persona_pipeline.scoring.style.rivals import worth
from persona_pipeline.scoring.voice_alarm.model import (
    COLUMNS,
    NO_CHANGE,
    VoiceModel,
    VoiceProvenance,
    VoiceSide,
    everyday,
    hashed,
    highest_sums,
    inverse_frequencies,
    languages,
    packed,
    unpacked,
    vectors,
    words_of,
)
from persona_pipeline.world.models import Message, Persona, conversations, seed_from

FEWEST_OWN, FEWEST_OTHERS = 30, 30
MOST_OWN, MOST_OTHERS = 6000, 24_000
# Share of stretches of own messages that may raise an alarm, and their length.
FALSE_ALARMS, HORIZON = 0.05, 500
# Codes of the languages whose everyday lines every voice is compared with.
everyday_languages = languages
# So many others, those who said most, are each a side of their own.
MOST_RIVALS = 11
# Strong, since a message is short; measured on real dialogue.
_PENALTY = 60.0
# The share of the way from its own mean to the other's that a message must pass to speak for a change: an episode in which
# somebody is not quite himself lies nearer to his own.
_WAY = 0.7
# Everyday language lies much farther off, and often only every second message is of it.
_WAY_TO_STOCK = 0.3
# From so many conversations on it is known how they differ. A change that others' messages would take longer to show is not
# looked for: where voices are so alike, or so little is known of the agent's, an alarm would tell nothing.
FEWEST_CONVERSATIONS, LONGEST_DELAY = 10, 200
# Where no channel and no pause says where a conversation ends, so many own messages are enough of them.
FEWEST_UNMARKED = 400
# From so many own messages on, false alarms were measured to be as rare as is said.
SURE = 800
_FOLDS, _DRAWS, _CAP = 5, 800, 3.0
# Own messages after which what was said one after another is taken to be another conversation: more than most have.
_LONG = 80
# Before the name of a section where it stands for a speaker: an agent may be called assistant.
_SECTION = "# "
# So many lines of everyday language are held out together: lines on one subject stand beside each other.
_LINES_TOGETHER = 5
# A change into everyday language is told from so many of its usual lines at the earliest.
LEAST_DELAY = 3.0
# Its part of the false alarms that are allowed where there are rivals too, whose sums come much nearer.
_SHARE_OF_STOCK = 0.2


def learn_voice(
    agent_id: str,
    messages: Sequence[Message],
    *,
    persona_hash: str = "",
    false_alarms: float = FALSE_ALARMS,
    root: Path | None = None,
) -> VoiceModel | None:
    """Learn an agent's voice from messages of everybody, oldest first. None: it said fewer than 30, or there
    is nothing to hold it against.

    Its own are held against everyday language and, where others said at least 30, against theirs, by ridge regression. The
    threshold of each of the two comes from its own messages, each judged by a model that did not see its conversation: what a share
    of ``false_alarms`` (a fifth for everyday language, where there are both) of sequences of 500 reach, drawn conversation by
    conversation about a mean that is known as well as so many conversations tell it, and as much again as they reached in the order
    in which they were said.

    Args:
        root: a world's folder, whose ``background`` is added to the everyday language of the package.
    """
    own = [message for message in messages if message.agent_id == agent_id and message.text.strip()][-MOST_OWN:]
    others = _thinned([message for message in messages if message.agent_id != agent_id and message.text.strip()])
    if len(own) < FEWEST_OWN:
        return None
    language, lines = everyday([message.text for message in own], root)
    provenance = VoiceProvenance(
        agent_id=agent_id,
        persona_hash=persona_hash,
        first_message=own[0].id,
        last_message=own[-1].id,
        until=own[-1].created_at,
        messages=len(own),
        conversations=known_conversations(own),
        others=len(others),
        language=language,
        everyday=len(lines),
        examples=sum(message.synthetic for message in own),
        false_alarms=false_alarms,
        horizon=HORIZON,
    )
    held: list[tuple[Sequence[Message], bool]] = []
    if len(others) >= FEWEST_OTHERS:
        held.append((sorted((*own, *others), key=lambda message: message.created_at), False))
    stock = [
        replace(
            own[-1],
            id=f"{section} {n}",
            agent_id=f"{_SECTION}{section}",
            channel=f"{section} {n // _LINES_TOGETHER}",
            text=line,
        )
        for n, (section, line) in enumerate(lines)
    ]
    if stock:
        held.append(([*own, *stock], True))
    return _learnt(own, held, provenance) if held else None


def _thinned(others: Sequence[Message]) -> list[Message]:
    """Return at most so many, of all times: beside others' latest alone, an agent's early messages stand out by their subjects."""
    kept = np.unique(np.linspace(0, len(others) - 1, min(len(others), MOST_OTHERS)).astype(int))
    return [others[place] for place in kept]


def known_conversations(own: Sequence[Message]) -> int:
    """Return how many conversations own messages are of: places; those with more than a tenth of them cut at pauses."""
    places = Counter(message.conversation for message in own)
    return len(
        {
            message.conversation if places[message.conversation] * FEWEST_CONVERSATIONS <= len(own) else talk
            for message, talk in zip(own, conversations(own), strict=True)
        }
    )


def _learnt(
    own: Sequence[Message], held: Sequence[tuple[Sequence[Message], bool]], provenance: VoiceProvenance
) -> VoiceModel:
    """Return the voice from its own messages together with others', and together with everyday lines (True)."""
    # How rare something is goes by the world's own talk where there is some.
    frequencies, matrix = _matrix([message.text for said, _ in held for message in said], len(held[0][0]))
    found, start = list[tuple[VoiceSide, Any]](), 0
    for said, is_stock in held:
        rows = matrix[start : start + len(said)]
        share = 1.0 if len(held) == 1 else _SHARE_OF_STOCK if is_stock else 1 - _SHARE_OF_STOCK
        found += _sides(own, said, rows, provenance, is_stock, share * provenance.false_alarms)
        start += len(said)
    return VoiceModel(
        sides=tuple(side for side, _ in found),
        provenance=provenance,
        weights=packed(np.array([weights for _, weights in found])) if found else "",
        inverse_frequencies=packed(frequencies) if found else "",
    )


def _sides(
    own: Sequence[Message],
    said: Sequence[Message],
    matrix: Any,
    provenance: VoiceProvenance,
    is_stock: bool,
    false_alarms: float,
) -> list[tuple[VoiceSide, Any]]:
    """Return the sides an agent's messages are held against, none where they tell nothing; steps are shares of the threshold."""
    agent_id = provenance.agent_id
    voices, speakers = _voices(agent_id, said)
    worths = np.array([worth(message.text) for message in said])
    is_own = speakers == 0
    fold = _folds(said, agent_id)
    scores = np.zeros((len(said), len(voices)))
    weights = np.zeros((COLUMNS, len(voices)), dtype=np.float32)
    for number in range(_FOLDS):
        learns = fold != number
        found = _regression(matrix[learns], speakers[learns], worths[learns], len(voices))
        scores[~learns] = matrix[~learns] @ found
        # All of them together are what is held against new messages; each saw four fifths, as in the held-out scores.
        weights += found / _FOLDS
    # The last side is anybody else: what is against the agent's voice may be for no other's.
    scores, weights = _against(scores), _against(weights)
    differences = scores * worths[:, None]
    others = (*(name.removeprefix(_SECTION) if is_stock else name for name in voices[1:]), "")
    columns = [n for n, other in enumerate(others) if not is_stock or other not in (NO_CHANGE, "")]
    mine = [differences[is_own, n] for n in columns]
    rest = [differences[(speakers == n + 1) if others[n] else ~is_own, n] for n in columns]
    sides = [
        _side(others[n], own_values, values, everyday=is_stock)
        for n, own_values, values in zip(columns, mine, rest, strict=True)
    ]
    steps = np.array([[side.step(value) for value in values] for side, values in zip(sides, mine, strict=True)]).T
    theirs = [fmean(map(side.step, values)) for side, values in zip(sides, rest, strict=True)]
    # Where its own messages hardly vary, the draws alone would give a threshold that two odd ones reach.
    least = max(theirs) * LEAST_DELAY if is_stock else -sides[-1].usual * (1 - _WAY) / _WAY * 2
    threshold = max(_threshold(steps, _batches(own), provenance, false_alarms), least)
    is_known = provenance.conversations >= FEWEST_CONVERSATIONS or provenance.messages >= FEWEST_UNMARKED
    if not (is_known and 0 < threshold <= LONGEST_DELAY * max(theirs)):
        return []
    told = zip(columns, sides, theirs, strict=True)
    return [(side.shared(threshold, their_mean), weights[:, n]) for n, side, their_mean in told]


def _against(columns: Any) -> Any:
    """Return the first column less each other one, and then the first as it is."""
    return np.hstack([columns[:, :1] - columns[:, 1:], columns[:, :1]])


def _voices(agent_id: str, said: Sequence[Message]) -> tuple[tuple[str, ...], Any]:
    """Return the agent and the others who said enough, most first, and the place of each message's voice there (-1: none)."""
    counted = Counter(message.agent_id for message in said if message.agent_id != agent_id)
    order = sorted(counted, key=lambda name: (-counted[name], name))
    voices = (agent_id, *(name for name in order[:MOST_RIVALS] if counted[name] >= FEWEST_OTHERS))
    places = {name: place for place, name in enumerate(voices)}
    return voices, np.array([places.get(message.agent_id, -1) for message in said])


def _matrix(texts: Sequence[str], counted: int) -> tuple[Any, Any]:
    """Return the inverse frequencies of the columns among the first so many, and a row for each text."""
    found = [hashed(text) for text in texts]
    # Rounded as they will be stored, so that a model read back gives the same numbers.
    frequencies = unpacked(packed(inverse_frequencies(found[:counted])))
    return frequencies, vectors(found, frequencies)


def _regression(matrix: Any, speakers: Any, worths: Any, voices: int) -> Any:
    """Return a column of weights for each voice: its messages against all others, long ones and rarer sides weighing more."""
    from sklearn.linear_model import Ridge

    targets = speakers[:, None] == np.arange(voices)
    ours = np.maximum(targets.mean(axis=0), 1 / len(targets))
    weights = worths[:, None] * np.sqrt(np.where(targets, 0.5 / ours, 0.5 / np.maximum(1 - ours, 1 / len(targets))))
    weights = weights / weights.mean(axis=0)
    centred = targets - (weights * targets).mean(axis=0)
    model = Ridge(_PENALTY, fit_intercept=False, solver="sparse_cg")
    columns = zip(centred.T, weights.T, strict=True)
    return np.stack([model.fit(matrix, ours, sample_weight=share).coef_ for ours, share in columns], axis=1)


def _side(other: str, ours: Any, theirs: Any, *, everyday: bool) -> VoiceSide:
    way = _WAY_TO_STOCK if everyday else _WAY
    mine, gap, spread = float(ours.mean()), float(ours.mean() - theirs.mean()), float(ours.std()) or 1.0
    # The log-odds of two normal distributions that are so far apart.
    scale = max(gap, 0.0) / spread**2
    side = VoiceSide(
        other=other,
        reference=mine - way * gap,
        scale=scale,
        cap=max(_CAP * spread, abs(gap)) * scale,
        usual=0.0,
        everyday=everyday,
    )
    return side.model_copy(update={"usual": float(np.mean([side.step(value) for value in ours]))})


def _folds(said: Sequence[Message], agent_id: str) -> Any:
    """Return the part of cross-validation of each message: of a whole place, with some of every speaker's in at least three parts.

    A place in which somebody said more than a part's share is cut there. What decides is who speaks where after whom, never when.
    """
    totals, counted = Counter(message.agent_id for message in said), Counter[tuple[str, str]]()
    fresh = count()
    piece_of: dict[str, int] = {}
    pieces = []
    for message in said:
        place, key = message.conversation, (message.conversation, message.agent_id)
        if place not in piece_of or counted[key] * _FOLDS >= totals[message.agent_id]:
            piece_of[place] = next(fresh)
            counted = Counter({other: n for other, n in counted.items() if other[0] != place})
        counted[key] += 1
        pieces.append(piece_of[place])
    ours = np.unique([piece for piece, message in zip(pieces, said, strict=True) if message.agent_id == agent_id])
    part = np.zeros(max(pieces) + 1, dtype=int)
    for own_or_not in (ours, np.setdiff1d(pieces, ours)):
        part[own_or_not] = np.arange(len(own_or_not)) % _FOLDS
    return part[pieces]


def _batches(own: Sequence[Message]) -> Any:
    """Return a number for each own message: ten batches of what was said one after another, place by place, or more of 80 each.

    Where ten conversations are known a batch is as long as their mean, whatever pauses there are between their messages.
    """
    places: dict[str, int] = {}
    order = np.argsort([places.setdefault(message.conversation, len(places)) for message in own], kind="stable")
    batches = np.zeros(len(own), dtype=int)
    batches[order] = np.arange(len(own)) * max(FEWEST_CONVERSATIONS, len(own) // _LONG) // len(own)
    return batches


def _threshold(steps: Any, groups: Any, provenance: VoiceProvenance, false_alarms: float) -> float:
    """Return the sum from which there is an alarm, of steps (messages x sides) in the order in which they were said.

    What is drawn knows only the conversations that were learnt from. So each sequence lies as far off as their mean may, by
    Student's t of as many conversations; and what goes on from one conversation to the next, which draws do not know, is in the
    sums that were reached in that order.
    """
    generator = np.random.default_rng(seed_from("voice threshold", provenance.agent_id))
    drawn = steps[_drawn(groups, generator, provenance.horizon)]
    sizes = np.bincount(groups)
    if len(sizes) > 1:
        means = steps.mean(axis=0)
        around = np.stack([np.bincount(groups, column) for column in steps.T], axis=1) - sizes[:, None] * means
        error = np.sqrt((around**2).sum(axis=0) * len(sizes) / (len(sizes) - 1)) / len(steps)
        drawn += (generator.standard_t(len(sizes) - 1, (len(drawn), 1)) * error)[:, None, :]
    length = min(len(steps), provenance.horizon)
    starts = range(0, len(steps) - length + 1, length)
    reached = highest_sums(np.stack([steps[start : start + length] for start in starts]))
    allowed = 1 - false_alarms
    return float(np.quantile(highest_sums(drawn), allowed) + np.quantile(reached, allowed, method="higher"))


def _drawn(groups: Any, generator: Any, length: int) -> Any:
    """Return the places of ``_DRAWS`` sequences of whole groups drawn one after another, each cut off at a length."""
    order, sizes = np.argsort(groups, kind="stable"), np.bincount(groups)
    starts, drawn = np.cumsum(sizes) - sizes, np.zeros(0, dtype=int)
    begins: list[int] = []
    before = np.zeros(1, dtype=int)
    while len(begins) < _DRAWS:
        more = generator.integers(len(sizes), size=_DRAWS * (length // int(sizes.mean()) + 1))
        drawn = np.concatenate([drawn, more])
        # How many places there are before each group, and which group is the first of each sequence.
        before = np.concatenate([[0], np.cumsum(sizes[drawn])])
        begins, group = [], 0
        while len(begins) < _DRAWS and before[group] + length <= before[-1]:
            begins.append(int(before[group]))
            group = int(np.searchsorted(before, before[group] + length))
    places = np.arange(before[-1]) - np.repeat(before[:-1] - starts[drawn], sizes[drawn])
    return order[places[np.array(begins)[:, None] + np.arange(length)]]


_TABLE = tables.voice_models
# Up to this share of its words a persona may be mended and keeps its voice: five misspelt words are up to .07, a sentence
# put in another's place .06 (most .23), half of it at least .32, and another persona .76, on six personas of 70 to 250 words.
_MENDED = 0.2
_MOST_FORMER = 3


@dataclass(frozen=True)
class LearntVoice:
    """What is known of an agent's voice.

    Attributes:
        model: None while there is too little to learn from.
        since: messages up to here belong to an earlier persona and are not learnt from; None: all count.
        note: what a reader should know, such as that the voice is being learnt anew; empty when there is nothing to say.
        persona: the text it began with.
        former: voices of earlier personas, the latest first; ``left``: when the newest message was sent as such a one was replaced.
    """

    agent_id: str
    persona_hash: str
    model: VoiceModel | None
    since: datetime | None = None
    note: str = ""
    persona: str = ""
    former: tuple["LearntVoice", ...] = ()
    left: datetime | None = None

    @property
    def follows_from(self) -> datetime | None:
        """Messages after this are held against it; None: all."""
        starts = [self.since, self.model.provenance.until if self.model else None]
        return max((start for start in starts if start), default=None)


def stored_voice(store: Store, agent_id: str) -> LearntVoice | None:
    """Return an agent's voice as it was stored; None when none was, or by a version that this one cannot read."""
    return stored_voices(store, [agent_id]).get(agent_id)


def stored_voices(store: Store, agent_ids: Collection[str]) -> dict[str, LearntVoice]:
    """Return the voices of some agents as they were stored, by agent; see ``stored_voice``."""
    with store.connect() as connection:
        rows = connection.execute(sa.select(_TABLE).where(among(_TABLE.c.agent_id, agent_ids))).all()
    found = {}
    for row in rows:
        with suppress(ValidationError):
            found[row.agent_id] = _stored().validate_python(row.model)
    return found


@cache
def _stored() -> TypeAdapter[LearntVoice]:
    return TypeAdapter(LearntVoice)


def current_voice(known: LearntVoice | None, persona: Persona, newest: datetime | None) -> LearntVoice:
    """Return what is known of the voice of an agent's present persona.

    One whose text was hardly changed keeps its voice, one that was brought back has it back, and any other's starts over from here.

    Args:
        known: as it was stored.
        newest: when the newest message was sent; what was said up to then belongs to the earlier persona.
    """
    name, own_hash = persona.agent_id, persona.hash
    if known is None:
        return LearntVoice(name, own_hash, None, persona=persona.persona)
    if known.persona_hash == own_hash:
        return known
    candidates = [known, *known.former]
    matched = (
        SequenceMatcher(None, words_of(c.persona), words_of(persona.persona), autojunk=False) for c in candidates
    )
    shares = [1 - found.ratio() for found in matched]
    share, nearest = min(zip(shares, candidates, strict=True), key=lambda item: item[0])
    if share > _MENDED:
        note = f"the persona of {name} has changed: its voice is learnt anew from what it says from now on"
        nearest = LearntVoice(name, own_hash, None, newest or known.since, persona=persona.persona)
    elif nearest is known:
        note = f"the persona of {name} was mended ({share:.0%} of its words): it keeps its voice"
        return replace(known, persona_hash=own_hash, note=note)
    else:
        note = f"the persona of {name} is as it was before: its earlier voice goes on"
        # What it said in between, if anything, was another's.
        nearest = replace(nearest, since=nearest.since if newest == nearest.left else newest, left=None)
    left = replace(known, former=(), left=newest)
    former = [item for item in (left, *known.former) if item.model is not None and item.persona != nearest.persona]
    return replace(nearest, persona_hash=own_hash, note=note, former=tuple(former[:_MOST_FORMER]))


def learnt_from(known: LearntVoice, history: Sequence[Message], root: Path | None = None) -> LearntVoice:
    """Return a voice as it is learnt from what was said since it started over; without a model where that is too little.

    ``history``: of everybody, oldest first, up to where the agent is taken to have been itself; ``root``: see ``learn_voice``.
    """
    usable = [message for message in history if known.since is None or message.created_at > known.since]
    return replace(known, model=learn_voice(known.agent_id, usable, persona_hash=known.persona_hash, root=root))


def write_voices(connection: Connection, voices: Sequence[LearntVoice]) -> None:
    """Keep voices, one an agent, each with those of its earlier personas."""
    rows = [
        {
            "agent_id": item.agent_id,
            "persona_hash": item.persona_hash,
            "since": item.since,
            "model": _stored().dump_python(replace(item, note=""), mode="json"),
        }
        for item in voices
    ]
    upsert(connection, _TABLE, rows, key=["agent_id"])
