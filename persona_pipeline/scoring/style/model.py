"""Learnt voice of an agent: the usual variation of its messages, and tests of the mean of new messages.

Each feature of a message (``features``) becomes the normal score of its rank in the history, without its own conversation. A
one-way layout over conversations gives the variance of a mean of new messages. Hotelling's T² (1931), approximated by F, tests all
features together; one-sided t tests cover repetition and nearness to each other agent's wording.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from io import BytesIO
from math import log10
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel

from persona_pipeline.scoring.style.features import (
    NEAREST_OF,
    NO_CHANGE,
    REPEATS,
    SECTIONS,
    STOCK,
    WORDING,
    GramCounts,
    StockLines,
    Texts,
    everyday,
    gram_length,
    packaged,
    usual_share,
    usual_words,
)
from persona_pipeline.scoring.style.features import (
    languages as languages,
)
from persona_pipeline.scoring.style.likeness import by_speaker
from persona_pipeline.world.models import Message, conversations

# Minimum own messages and conversations to learn a voice; below the second pair only large changes are detected.
FEWEST_OWN, FEWEST_CONVERSATIONS = 30, 10
ENOUGH_OWN, ENOUGH_CONVERSATIONS = 100, 20
FEWEST_OTHERS, MOST_RIVALS = 30, 11
MOST_OWN, MOST_OTHERS = 3000, 12_000
# About 5 % of stretches of this number of own messages raise a false alarm (measured).
HORIZON = 500
# Means of this many newest messages are tested.
WINDOWS = (3, 5, 10, 25, 50, 75)
# Conversations change an agent for a time, so their variance counts three times; a window within one conversation is the least
# certain. Limits of -log10 p: in windows below 25, of all features from 25 on, with little history, and of single tests from 25 on.
_BETWEEN, _BETWEEN_RIVALS, _LONG_WINDOW, _LITTLE = 3.0, 1.5, 25, 250
_LIMIT_SHORT, _LIMIT_LONG, _LIMIT_LITTLE, _LIMIT_FEW, _LIMIT_SINGLE = 6.5, 3.5, 4.5, 3.5, 4.0
# Margin above the highest evidence in the agent's own history.
_ABOVE_HISTORY, _ABOVE_HISTORY_ALONE = 1.0, 0.5
_NEVER = 1e6
_SHRINKAGE = 0.2
# A feature without variation may vary in one of the conversations: squared normal score of the highest rank.
_HIGHEST_SQUARED = 9.0
# Features whose distance from the middle counts too, as a measure of variation.
_SPREAD = (0, 2, 3, WORDING, STOCK)
_PLAIN = REPEATS + 1
# Messages past this point on the way to another wording read like it.
_GONE_OVER = 0.5
# Number of messages in a row that count as a conversation where most have one message, or where they have no end.
_ROW, _LONGEST = 4, 40
_LOOKED_AT = 200


class VoiceProvenance(BaseModel, extra="forbid", frozen=True):
    """Sources of a learnt voice.

    Attributes:
        persona_hash: of its persona; another persona is another voice.
        first_message, last_message: ids of the agent's own messages; until: time of the last one.
        messages, conversations: numbers of the agent's own; others: messages of other agents; everyday: everyday lines.
        language: of the agent's own messages; ``unknown`` if it is not recognized.
    """

    agent_id: str
    persona_hash: str
    first_message: str
    last_message: str
    until: datetime
    messages: int
    conversations: int
    others: int
    language: str
    everyday: int
    version: Literal[6] = 6


@dataclass(frozen=True)
class Wording:
    """N-grams of an agent, of stock language and of its rivals, and its 60 usual words."""

    own: GramCounts
    stock: GramCounts
    rivals: Sequence[GramCounts]
    usual: Sequence[str]

    def values(self, texts: Texts, own: Any, others: Any, overlap: Any, usual: Sequence[Any] | None = None) -> Any:
        """Return the values of ``FEATURES``, then per rival the wording's margin for the agent, one row for each message.

        Args:
            own, others: log-likelihoods under the agent's n-grams, and under stock language and each rival (columns).
            usual: usual words of each message; None: the agent's.
        """
        usual = usual if usual is not None else [frozenset(self.usual)] * len(texts)
        columns = [
            texts.shape(),
            usual_share(texts, usual),
            own,
            own - others[:, 0],
            overlap,
            own[:, None] - others[:, 1:],
        ]
        return np.column_stack(columns).astype(np.float32)

    def others(self, texts: Texts, left_out: int | None = None) -> Any:
        """Return the log-likelihoods under stock language and each rival; column ``left_out`` excludes the message itself."""
        every = enumerate((self.stock, *self.rivals))
        return np.column_stack([c.logs(texts, np.arange(len(texts)) if n == left_out else None) for n, c in every])


class VoiceModel(BaseModel, extra="forbid", frozen=True):
    """A voice that messages are compared with.

    Attributes:
        rivals: other agents, each with a separate test.
        usual: its 60 usual words. latest: its newest messages. background: a world's own everyday lines.
        gram: characters of an n-gram. arrays: base64 of numpy's ``npz``: sorted history, variances and n-gram counts.
        limits: -log10 p from which each test (columns) raises an alarm in each of ``WINDOWS``.
        delays: for stock language ("") and each rival, the smallest window that detects such messages; absent: none does.
    """

    provenance: VoiceProvenance
    rivals: tuple[str, ...] = ()
    usual: tuple[str, ...] = ()
    latest: tuple[str, ...] = ()
    background: StockLines = ()
    gram: int = 0
    arrays: str = ""
    limits: tuple[tuple[float, ...], ...] = ()
    delays: dict[str, int] = {}

    @property
    def tells(self) -> bool:
        """Whether the history is long enough to report that a voice has not changed."""
        known = self.provenance
        return known.messages >= ENOUGH_OWN and known.conversations >= ENOUGH_CONVERSATIONS

    @cached_property
    def _arrays(self) -> dict[str, Any]:
        with np.load(BytesIO(base64.b64decode(self.arrays)), allow_pickle=False) as found:
            return dict(found)

    @cached_property
    def _wording(self) -> Wording:
        own, *rivals = (
            GramCounts(self._arrays[f"hashes{n}"], self._arrays[f"counts{n}"]) for n in range(1 + len(self.rivals))
        )
        return Wording(own, self._stock[""], rivals, self.usual)

    @property
    def _stock(self) -> Mapping[str, GramCounts]:
        return stock_counts(self.provenance.language, self.background, self.gram)

    def rows(self, texts: Sequence[str], before: Sequence[str]) -> Any:
        """Return the normal scores of messages; ``before``: the agent's messages before them."""
        before = before[-NEAREST_OF:]
        found, known = Texts([*before, *texts], self.gram), self._wording
        values = known.values(found, known.own.logs(found), known.others(found), found.overlap())
        return _scores(values, self._arrays["sorted"])[len(before) :]

    @property
    def mean(self) -> Any:
        """Mean normal scores of the history."""
        return self._arrays["mean"]

    def shift(self, rows: Any) -> Any:
        """Return the distance of the mean of messages from the history, in standard deviations of a message."""
        return rows.mean(axis=0) - self.mean

    def evidence(self, means: Any, count: int) -> Any:
        """Return the -log10 p of each test (all features, repetition, each rival) for means of ``count`` messages."""
        from scipy import special

        known, talks, said = self._arrays, self.provenance.conversations, self.provenance.messages
        part = min(1.0, said / talks / count) + 1 / talks
        times = np.full(means.shape[1], _BETWEEN)
        times[means.shape[1] - len(self.rivals) :] = _BETWEEN_RIVALS
        variance = times * known["between"] * part + known["within"] * (1 / count + 1 / said)
        t = (means - known["mean"]) / np.sqrt(variance)
        together, size = t[:, known["columns"]], len(known["columns"])
        square = np.einsum("ij,jk,ik->i", together, known["inverse"], together)
        found = [special.fdtrc(size, talks - 1, square / size), special.stdtr(talks - 1, -t[:, REPEATS])]
        nearer = special.stdtr(talks - 1, t[:, t.shape[1] - len(self.rivals) :]) * max(1, len(self.rivals))
        return -np.log10(np.clip(np.column_stack([*found, nearer]), 1e-300, 1))

    def level(self, rows: Any, window: int) -> Any:
        """Return the evidence of each test in the window up to each message, as a share of its limit; 0: too few messages."""
        found = np.zeros((len(rows), 2 + len(self.rivals)))
        if len(rows) >= window:
            found[window - 1 :] = self.evidence(_means(rows, window), window) / self.limits[WINDOWS.index(window)]
        return found

    def way(self, texts: Sequence[str]) -> dict[str, float]:
        """Return the move of texts to stock language ("") and each rival: 0 like its own messages, 1 like the other's."""
        found, known = Texts(texts, self.gram), self._wording
        apart = (known.own.logs(found)[:, None] - known.others(found)).mean(axis=0)
        own, theirs = self._arrays["own_apart"], self._arrays["their_apart"]
        others = zip(("", *self.rivals), apart, own, theirs, strict=True)
        return {name: float((a - x) / (a - b)) for name, x, a, b in others if a > b}

    def nearest(self, texts: Sequence[str]) -> str:
        """Return the rival, or the name of the stock language, that texts read like; "" for neither."""
        way = self.way(texts)
        name = max(way, key=lambda name: way[name], default="")
        if way.get(name, 0.0) < _GONE_OVER:
            return ""
        if name:
            return name
        found = Texts(texts, self.gram)
        near = {kind: counts.logs(found).mean() for kind, counts in self._stock.items() if kind not in ("", NO_CHANGE)}
        return SECTIONS[max(near, key=lambda kind: near[kind])]


def learn_voice(
    agent_id: str, messages: Sequence[Message], *, persona_hash: str = "", looks: int = 1, root: Path | None = None
) -> VoiceModel | None:
    """Learn an agent's voice from everyone's messages, oldest first. None: it has fewer than 30 messages.

    With fewer than 10 conversations the voice has no limits and raises no alarm.

    Args:
        looks: number of stretches of 500 messages that share one false alarm rate. root: a world's folder, for its ``background``.
    """
    own = [message for message in messages if message.agent_id == agent_id and message.text.strip()][-MOST_OWN:]
    talks = talk_numbers(own)
    count = len(set(talks))
    if len(own) < FEWEST_OWN:
        return None
    texts, others = [message.text for message in own], _others(agent_id, messages)
    language, lines = everyday(texts, root)
    provenance = VoiceProvenance(
        agent_id=agent_id, persona_hash=persona_hash, first_message=own[0].id, last_message=own[-1].id,
        until=own[-1].created_at, messages=len(own), conversations=count, others=sum(map(len, others.values())),
        language=language, everyday=len(lines),
    )  # fmt: skip
    if count < FEWEST_CONVERSATIONS:
        return VoiceModel(provenance=provenance)
    gram, background = gram_length(texts), lines[len(packaged(language)) :]
    found = Texts(texts, gram)
    usual, elsewhere = usual_words(found, talks)
    rivals = [GramCounts.of(Texts(said, gram)) for said in others.values()]
    known = Wording(GramCounts.of(found), stock_counts(language, background, gram)[""], rivals, usual)
    values = known.values(found, known.own.logs(found, talks), known.others(found), found.overlap(), elsewhere)
    history = np.sort(values, axis=0)
    rows = _scores(values, history)
    stock = [line for section, line in lines if section != NO_CHANGE]
    samples = [_sampled(texts) for texts in (stock, *others.values())]
    theirs = [_as_read(known, Texts(texts, gram), n) for n, texts in enumerate(samples)]
    margins = [STOCK, *range(_PLAIN, values.shape[1])]
    apart = [item[:, n].mean() if len(item) else np.inf for n, item in zip(margins, theirs, strict=True)]
    arrays = {"sorted": history, **_layout(rows, talks, len(others), with_stock=bool(lines))}
    arrays |= {"own_apart": values[:, margins].mean(axis=0), "their_apart": np.array(apart)}
    for n, counts in enumerate((known.own, *rivals)):
        arrays |= {f"hashes{n}": counts.hashes, f"counts{n}": counts.counts}
    model = VoiceModel(
        provenance=provenance, rivals=tuple(others), usual=tuple(usual), latest=tuple(texts[-NEAREST_OF:]),
        background=background, gram=gram, arrays=_packed(arrays),
    )  # fmt: skip
    model = model.model_copy(update={"limits": _limits(model, rows, looks)})
    return model.model_copy(update={"delays": _delays(model, theirs)})


def talk_numbers(own: Sequence[Message]) -> Any:
    """Return the conversation of each own message as a number from 0.

    Endless conversations are cut into 40 messages; if most have a single message, four in a row form one.
    """
    found, place = np.unique(conversations(own), return_inverse=True)
    if len(own) < 2 * len(found):
        return np.arange(len(own)) // _ROW
    order = np.argsort(place, kind="stable")
    sizes = np.bincount(place, minlength=len(found))
    within = np.empty(len(own), dtype=int)
    within[order] = np.arange(len(own)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.unique(np.stack([place, within // _LONGEST]), axis=1, return_inverse=True)[1].ravel()


def _others(agent_id: str, messages: Sequence[Message]) -> dict[str, list[str]]:
    """Return texts of the agents with the most messages, sampled evenly over time, by agent."""
    said = by_speaker(item for item in messages if item.agent_id != agent_id and item.text.strip())
    most = sorted(
        (name for name in said if len(said[name]) >= FEWEST_OTHERS), key=lambda name: (-len(said[name]), name)
    )
    most = most[:MOST_RIVALS]
    return {name: _sampled(said[name], MOST_OTHERS // len(most)) for name in most}


def _sampled(texts: Sequence[str], most: int = _LOOKED_AT) -> list[str]:
    kept = np.unique(np.linspace(0, len(texts) - 1, min(len(texts), most)).astype(int)) if texts else []
    return [str(texts[place]) for place in kept]


@lru_cache(maxsize=16)
def stock_counts(language: str, background: StockLines, gram: int) -> Mapping[str, GramCounts]:
    """Return the n-grams of everyday lines by section; "": of all sections."""
    sections: dict[str, list[str]] = {"": []}
    for section, line in (*packaged(language), *background):
        sections[""].append(line)
        sections.setdefault(section, []).append(line)
    return {name: GramCounts.of(Texts(lines, gram)) for name, lines in sections.items()}


def _scores(values: Any, history: Any) -> Any:
    """Return the normal scores of ranks in the history: of all features, of distances from the middle, and of the rivals."""
    from scipy.special import ndtri

    ranks = np.empty(values.shape)
    for n, known in enumerate(history.T):
        below, above = (np.searchsorted(known, values[:, n], side) for side in ("left", "right"))
        ranks[:, n] = (below + above) / 2 / len(known)
    least = 0.5 / (len(history) + 1)
    found = ndtri(np.clip(ranks, least, 1 - least))
    return np.hstack([found[:, :_PLAIN], np.abs(found[:, _SPREAD]), found[:, _PLAIN:]])


def _layout(rows: Any, talks: Any, rivals: int, *, with_stock: bool) -> dict[str, Any]:
    """Return means, variances between and within conversations (one-way layout), and the inverse of the shrunk correlations."""
    count, sizes = len(rows), np.bincount(talks)
    groups, mean = len(sizes), rows.mean(axis=0)
    of_talk = np.stack([np.bincount(talks, column) for column in rows.T], axis=1) / sizes[:, None]
    within = ((rows - of_talk[talks]) ** 2).sum(axis=0) / (count - groups)
    around = (sizes[:, None] * (of_talk - mean) ** 2).sum(axis=0) / (groups - 1)
    size = (count - (sizes**2).sum() / count) / (groups - 1)
    between = np.maximum((around - within) / size, np.maximum(0, _HIGHEST_SQUARED / groups - within))
    kept = [n for n in range(rows.shape[1] - rivals) if with_stock or n not in (STOCK, _PLAIN + _SPREAD.index(STOCK))]
    spread = rows[:, kept].std(axis=0)
    standard = (rows[:, kept] - mean[kept]) / np.where(spread > 0, spread, 1)
    correlation = (1 - _SHRINKAGE) * (standard.T @ standard) / count
    np.fill_diagonal(correlation, 1)
    inverse = np.linalg.inv(correlation)
    return {"mean": mean, "between": between, "within": within, "columns": np.array(kept), "inverse": inverse}


def _means(rows: Any, window: int) -> Any:
    sums = np.vstack([np.zeros(rows.shape[1]), np.cumsum(rows, axis=0)])
    return (sums[window:] - sums[:-window]) / window


def _limits(model: VoiceModel, rows: Any, looks: int) -> tuple[tuple[float, ...], ...]:
    """Return the limits of each window and test: the common ones, or higher where the agent's history reached them."""
    found = []
    for window in WINDOWS:
        long = window >= _LONG_WINDOW
        together = _LIMIT_LITTLE if len(rows) < _LITTLE else _LIMIT_LONG if long else _LIMIT_SHORT
        rival = _LIMIT_SINGLE if long else _LIMIT_SHORT
        if model.provenance.conversations < ENOUGH_CONVERSATIONS:
            together, rival = _LIMIT_FEW, _LIMIT_SINGLE
        # Two or three similar messages in a row are not evidence.
        least = [together, _LIMIT_SINGLE if long else _NEVER, *[rival] * len(model.rivals)]
        margin = [_ABOVE_HISTORY, *[_ABOVE_HISTORY_ALONE] * (len(least) - 1)]
        reached = model.evidence(_means(rows, window), window).max(axis=0) if len(rows) >= window else 0
        found.append(tuple((np.maximum(least, reached + np.array(margin)) + log10(looks)).tolist()))
    return tuple(found)


def _as_read(known: Wording, texts: Texts, other: int) -> Any:
    """Return the features of others' messages as if the agent had sent them; ``other``: 0 is stock language, then the rivals."""
    if not len(texts):
        return np.zeros((0, _PLAIN + len(known.rivals)))
    return known.values(texts, known.own.logs(texts), known.others(texts, left_out=other), np.zeros(len(texts)))


def _delays(model: VoiceModel, theirs: Sequence[Any]) -> dict[str, int]:
    found = {}
    for name, values in zip(("", *model.rivals), theirs, strict=True):
        if len(values):
            means = _scores(values, model._arrays["sorted"]).mean(axis=0, keepdims=True)
            means[:, REPEATS] = model._arrays["mean"][REPEATS]
            shown = [
                w for w, limits in zip(WINDOWS, model.limits, strict=True) if (model.evidence(means, w) >= limits).any()
            ]
            found |= {name: shown[0]} if shown else {}
    return found


def _packed(arrays: Mapping[str, Any]) -> str:
    written = BytesIO()
    np.savez_compressed(written, **arrays)
    return base64.b64encode(written.getvalue()).decode("ascii")
