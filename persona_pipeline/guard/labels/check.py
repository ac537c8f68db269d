"""The check of one agent's voice that its labels train: how likely a text is its own, and how often the check itself is wrong.

It learns from labels alone, so it is the same wherever they lie. Its error comes from labels it did not learn from, conversation by
conversation, and is carried over to all that the agent said by how sure the check is of it: who rates chooses what to rate.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from persona_pipeline.base.text import shortened
from persona_pipeline.guard.labels.files import LABELS
from persona_pipeline.guard.labels.messages import MarkSource, MessageLabel, load_message_labels
from persona_pipeline.guard.report import Finding
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.scoring.voice_alarm.model import COLUMNS, hashed, inverse_frequencies, vectors, weighted
from persona_pipeline.world.messages.store import read_messages
from persona_pipeline.world.models import Message, Window, grouped, seed_from
from persona_pipeline.world.world import World

# Labels it takes, of each kind, and conversations they come from; a label counts for what its source is worth.
FEWEST, FEWEST_OF_EACH, FEWEST_TALKS = 30, 8, 5
_FOLDS, _DRAWS = 5, 4000
# How strongly few labels may pull; measured on four worlds that no figure in the documentation is from.
_LOOSENESS = 1.0
_LEAST_TOLD, _HALF = 0.05, 0.5
# How many times the odds of a stratum may be off: with labels drawn by lot, since new texts are held against another model than
# labels were; and with those of whoever felt like it. A check must be so many standard errors better than chance.
_BY_LOT, _BY_CHOICE, _SURE = 1.5, 8.0, 3.0
# For how many labels one counts of a person who was asked, and which way.
_WORTH = {MarkSource.STARS: 0.5, MarkSource.THUMBS: 0.5, MarkSource.SWIPE: 0.25, MarkSource.REGENERATION: 0.25}
_SIGN = {Role.IN: 1, Role.OUT: -1, Role.UNCLEAR: 0}
Interval = tuple[float, float]


@dataclass(frozen=True)
class NoCheck:
    """Why there is no check of an agent's voice."""

    reason: str

    def __str__(self) -> str:
        return f"says nothing: {self.reason}"


@dataclass(frozen=True)
class CheckError:
    """How often a check is wrong, as 95 % intervals of shares (0-1).

    ``false_off``: of messages that sound like the agent, called off; ``false_on``: of those that do not, called on. ``beyond``:
    messages of the agent that nobody labelled and that count in it; 0: it holds of labelled messages only. ``draws``: pairs of
    both rates, as probable as the labels leave them, for each way in which raters may have chosen.
    """

    false_off: Interval
    false_on: Interval
    beyond: int
    draws: Any = field(repr=False, compare=False)

    def __str__(self) -> str:
        of = f"{self.beyond} messages nobody labelled count in it" if self.beyond else "among labelled messages"
        off, on = ("{:.0%} to {:.0%}".format(*rate) for rate in (self.false_off, self.false_on))
        return f"it calls {off} of what is on off, and {on} of what is off on (95 %, {of})"

    def share_off(self, called: int, messages: int) -> Interval:
        """Return the 95 % interval of the share of messages that are off, of which the check called so many off.

        What the check calls off is corrected for its error (Rogan and Gladen, 1978).
        """
        generator = np.random.default_rng(seed_from("share off", called, messages))
        seen = generator.beta(called + 0.5, messages - called + 0.5, self.draws.shape[1])
        told = 1 - self.draws.sum(axis=2)
        # A check that is wrong as often as right tells nothing.
        share = (seen - self.draws[:, :, 0]) / np.maximum(told, _LEAST_TOLD)
        low, high = (np.where(told > _LEAST_TOLD, share, otherwise) for otherwise in (0.0, 1.0))
        bounds = np.quantile(low, 0.025, axis=1).min(), np.quantile(high, 0.975, axis=1).max()
        return float(np.clip(bounds[0], 0, 1)), float(np.clip(bounds[1], 0, 1))


@dataclass(frozen=True)
class VoiceCheck:
    """A check of one agent's voice.

    ``labels``, ``people``, ``conversations``: how many it was learnt from; ``sources``: labels by where they come from. ``auc``:
    probability that a label "on" it did not learn from has a higher score than one "off". ``held_out``: score (0-1), label (1:
    on), worth and whether drawn by lot of every text, scored without its conversation. ``known``: the same scores by text.
    """

    agent_id: str
    labels: int
    people: int
    conversations: int
    sources: Mapping[str, int]
    auc: float
    held_out: Any = field(repr=False, compare=False)
    known: Mapping[str, float] = field(repr=False, compare=False)
    weights: Any = field(repr=False, compare=False)
    inverse_frequencies: Any = field(repr=False, compare=False)
    scale: tuple[float, float]

    def __str__(self) -> str:
        sources = ", ".join(f"{count} {name}" for name, count in self.sources.items())
        people = f"{self.people} {'person' if self.people == 1 else 'people'}"
        said = f"{self.labels} labels ({sources}) by {people} in {self.conversations} conversations"
        return f"the check was learnt from {said}, AUC {self.auc:.2f};"

    def score(self, text: str) -> float:
        """Return how likely a text sounds like the agent, 0-1, if both were as common; below 0.5 it is called off."""
        columns, values = weighted(hashed(text), self.inverse_frequencies)
        return float(_probability(float(values @ self.weights[columns]), self.scale))

    def unseen(self, text: str) -> float:
        """Like ``score``, of a labelled text by a model that did not learn from it."""
        return self.known[text] if text in self.known else self.score(text)

    def error(self, scores: Sequence[float] = ()) -> CheckError:
        """Return how often the check is wrong.

        In four strata by how sure the check is, what labels say of a stratum counts for as much as the agent's messages have of
        it (Jeffreys' prior over each side); a stratum that nobody labelled may be anything. Labels that were not drawn by lot may
        be of plainer messages than the rest, or wrong: within a stratum the odds are taken to be up to 8 times off, either way.
        ``scores``: of messages of the agent that nobody labelled; without them the labels stand for themselves.
        """
        held, truth, worth, by_lot = self.held_out.T
        everything = np.concatenate([held, np.asarray(scores, dtype=float)])
        off_side, on_side = everything[everything < _HALF], everything[everything >= _HALF]
        edges = [np.median(off_side) if len(off_side) else 0.0, _HALF, np.median(on_side) if len(on_side) else 1.0]
        stratum = np.searchsorted(edges, held, side="right")
        share = np.bincount(stratum, worth, minlength=4) / worth.sum()
        if len(scores):
            share = np.bincount(np.searchsorted(edges, everything, side="right"), minlength=4) / len(everything)
        on, off = (np.bincount(stratum, worth * (truth == kind), minlength=4) for kind in (1, 0))
        generator = np.random.default_rng(seed_from("voice check", self.agent_id, len(held), len(scores)))
        odds = generator.gamma(on + 0.25, size=(_DRAWS, 4)), generator.gamma(off + 0.25, size=(_DRAWS, 4))
        lot = float(np.average(by_lot, weights=worth))
        most = _BY_LOT**lot * _BY_CHOICE ** (1 - lot)
        draws = []
        for times in {1.0, most, 1 / most}:
            times_on = np.array([times, times, 1 / times, 1 / times])
            is_on = odds[0] * times_on / np.maximum(odds[0] * times_on + odds[1], 1e-300)
            draws.append(
                np.stack([_wrong(share * is_on, slice(0, 2)), _wrong(share * (1 - is_on), slice(2, 4))], axis=1)
            )
        rates = np.array(draws)
        # What contradicts a star or a swipe may be wrong itself: only people who were asked show that there are errors at all.
        wrong = (worth >= 1) & ((held >= _HALF) != (truth == 1))
        false_off, false_on = (_interval(rates[:, :, n], bool(wrong[truth == 1 - n].any())) for n in (0, 1))
        return CheckError(false_off, false_on, len(scores), rates)


def _wrong(parts: Any, called: slice) -> Any:
    return parts[:, called].sum(axis=1) / np.maximum(parts.sum(axis=1), 1e-300)


def _interval(draws: Any, seen: bool) -> Interval:
    # As for one binomial share: where no error was seen, none may be.
    low = float(np.quantile(draws, 0.025, axis=1).min()) if seen else 0.0
    return low, float(np.quantile(draws, 0.975, axis=1).max())


def world_checks(root: Path, agent_ids: Sequence[str]) -> dict[str, VoiceCheck | NoCheck]:
    """Return the check of each of some agents that has labels of its voice at all.

    ``root``: the world whose ``labels/voice.jsonl`` decides. Raises ``ConfigError``: lines that are no label of a voice.
    """
    labels = grouped(load_message_labels(root / LABELS), lambda label: label.agent_id)
    return {agent_id: learn_check(tuple(labels[agent_id])) for agent_id in agent_ids if agent_id in labels}


# Of a thousand labels half a megabyte each.
@lru_cache(maxsize=64)
def learn_check(labels: tuple[MessageLabel, ...]) -> VoiceCheck | NoCheck:
    """Learn the check of one agent from labels of its voice: logistic regression on character n-grams and words of a text.

    A text that several people labelled is one, with what most of them said. Scores are calibrated (Platt, 1999) on texts held out
    conversation by conversation, and the model held against new texts is the mean of those of cross-validation.
    """
    texts, talk, rows = [], [], []
    for text, said in grouped(labels, lambda label: label.text).items():
        vote = sum(_WORTH.get(label.source, 1.0) * _SIGN[label.verdict] for label in said)
        if vote:
            texts.append(text)
            talk.append(f"{said[0].conversation} {said[0].said_at[:10]}")
            rows.append((vote > 0, min(1.0, abs(vote)), False))
    truth, worth, by_lot = np.array(rows, dtype=float).reshape(-1, 3).T
    if reason := _too_little(truth, worth, talk):
        return NoCheck(reason)
    return _learnt(labels, texts, np.stack([truth, worth, by_lot]), np.unique(talk, return_inverse=True)[1])


def _too_little(truth: Any, worth: Any, talk: Sequence[str]) -> str:
    on, off = (float(worth[truth == kind].sum()) if len(truth) else 0.0 for kind in (1, 0))
    if on + off < FEWEST or min(on, off) < FEWEST_OF_EACH:
        said = f"{len(truth)} label{'s' if len(truth) != 1 else ''} ({int((truth == 1).sum())} on, {int((truth == 0).sum())} off)"
        counting = f" that count as {on:g} and {off:g}, for a star or thumb counts half and a swipe a quarter"
        weighs = counting if on + off < len(truth) else ""
        return f"{said}{weighs}; it needs {FEWEST} with {FEWEST_OF_EACH} of each"
    for kind, fewest in ((None, FEWEST_TALKS), (1, 2), (0, 2)):
        found = {name for name, value in zip(talk, truth, strict=True) if kind in (None, value)}
        if len(found) < fewest:
            of_kind = "" if kind is None else " on" if kind else " off"
            return f"its{of_kind} labels are of {len(found)} conversations; it needs {fewest}"
    return ""


def _learnt(labels: Sequence[MessageLabel], texts: Sequence[str], said: Any, talk: Any) -> VoiceCheck | NoCheck:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    truth, worth, _ = said
    found = [hashed(text) for text in texts]
    frequencies = inverse_frequencies(found).astype(np.float32)
    matrix = vectors(found, frequencies)
    fold = _folds(truth, talk)
    margins, weights = np.zeros(len(texts)), np.zeros(COLUMNS)
    parts = np.unique(fold)
    for part in parts:
        learns = fold != part
        model = LogisticRegression(C=_LOOSENESS, class_weight="balanced", fit_intercept=False, solver="liblinear")
        model.fit(matrix[learns], truth[learns], sample_weight=worth[learns])
        margins[~learns] = matrix[~learns] @ model.coef_[0]
        weights += model.coef_[0] / len(parts)
    auc = float(roc_auc_score(truth, margins, sample_weight=worth))
    # By the variance that the rank of labels has when they tell nothing (Mann and Whitney, 1947).
    on, off = (float(worth[truth == kind].sum()) for kind in (1, 0))
    if auc - 0.5 < _SURE * ((on + off + 1) / (12 * on * off)) ** 0.5:
        return NoCheck(f"from {len(labels)} labels it tells on from off no better than chance (AUC {auc:.2f})")
    scale = _scale(margins, truth, worth)
    held = _probability(margins, scale)
    return VoiceCheck(
        agent_id=labels[0].agent_id,
        labels=len(labels),
        people=len({label.labeller for label in labels}),
        conversations=int(talk.max()) + 1,
        sources=dict(sorted(Counter(label.source.value for label in labels).items())),
        auc=auc,
        held_out=np.column_stack([held, said.T]),
        known=dict(zip(texts, held.tolist(), strict=True)),
        weights=weights.astype(np.float32),
        inverse_frequencies=frequencies,
        scale=scale,
    )


def _folds(truth: Any, talk: Any) -> Any:
    """Return a part for each label: of a conversation all in one, both kinds spread over the parts as evenly as that allows."""
    counted = np.stack([np.bincount(talk, truth == kind) for kind in (0, 1)], axis=1)
    totals, held = counted.sum(axis=0), np.zeros((_FOLDS, 2))
    part = np.zeros(len(counted), dtype=int)
    # The largest first, each to where it makes the parts most alike.
    for number in sorted(range(len(counted)), key=lambda n: (-counted[n].max(), n)):
        costs = [
            float((((held[p] + counted[number]) / totals) ** 2 - (held[p] / totals) ** 2).sum()) for p in range(_FOLDS)
        ]
        part[number] = int(np.argmin(costs))
        held[part[number]] += counted[number]
    return part[talk]


def _scale(margins: Any, truth: Any, worth: Any) -> tuple[float, float]:
    """Return slope and shift by which a margin becomes log-odds."""
    from sklearn.linear_model import LogisticRegression

    spread = float(margins.std()) or 1.0
    model = LogisticRegression(class_weight="balanced").fit((margins / spread)[:, None], truth, sample_weight=worth)
    return float(model.coef_[0, 0]) / spread, float(model.intercept_[0])


def _probability(margin: Any, scale: tuple[float, float]) -> Any:
    return 1 / (1 + np.exp(-np.clip(scale[0] * margin + scale[1], -30, 30)))


# Of an agent's newest messages so many tell of what it says that nobody labelled.
MOST_BESIDE, MOST_QUOTES, _LONGEST_QUOTE = 300, 3, 80
# A window in which surely more of the messages are off is a finding.
FAR_OFF = 0.1


@dataclass(frozen=True)
class CheckedVoice:
    """The check of an agent's voice, held against its messages of a window.

    ``error``: how often the check is wrong; None: there is no check. ``messages``, ``called``: how many messages the window has,
    and how many the check calls off. ``share``: 95 % interval of the share (0-1) of the window's messages that are off, corrected
    for the check's error. ``worst``: the messages called off, the least like the agent first; at most three.
    """

    agent_id: str
    check: VoiceCheck | NoCheck
    error: CheckError | None = None
    messages: int = 0
    called: int = 0
    share: Interval = (0.0, 1.0)
    worst: tuple[Message, ...] = ()

    @property
    def text(self) -> str:
        """What the check says of the window, and how far it can be believed."""
        if self.error is None or isinstance(self.check, NoCheck):
            return f"the check of its voice {self.check}"
        said = f"{self.check} {self.error}"
        if not self.messages:
            return f"no messages to check; {said}"
        return f"{self.said}, {self.called} were called off; {said}"

    @property
    def said(self) -> str:
        """How many of the window's messages are off."""
        low, high = self.share
        return f"{low:.0%} to {high:.0%} of {self.messages} messages do not sound like it (95 %)"


def checked_voices(world: World, windows: Iterable[tuple[str, Window]]) -> dict[str, CheckedVoice]:
    """Return how the messages of agents' windows sound to the check of each; agents nobody labelled are left out.

    Raises ``ConfigError``: the world's ``labels/voice.jsonl`` does not load.
    """
    spans = dict(windows)
    found = {}
    for agent_id, check in world_checks(world.rules_root, list(spans)).items():
        span = spans[agent_id]
        end = min(span.end, world.horizon)
        if isinstance(check, NoCheck):
            found[agent_id] = CheckedVoice(agent_id, check)
            continue
        here = _scored(check, read_messages(world.store, Window(end, span.start), agent_id=agent_id, limit=MOST_BESIDE))
        beside = read_messages(world.store, Window(end), agent_id=agent_id, limit=MOST_BESIDE)
        error = check.error([score for score, _ in _scored(check, (m for m in beside if m.text not in check.known))])
        off = sorted((item for item in here if item[0] < 0.5), key=lambda item: item[0])
        found[agent_id] = CheckedVoice(
            *(agent_id, check, error, len(here), len(off)),
            share=error.share_off(len(off), len(here)) if here else (0.0, 1.0),
            worst=tuple(message for _, message in off[:MOST_QUOTES]),
        )
    return found


def _scored(check: VoiceCheck, messages: Iterable[Message]) -> list[tuple[float, Message]]:
    return [(check.unseen(message.text), message) for message in messages if message.text.strip()]


def check_findings(found: CheckedVoice) -> Iterator[Finding]:
    """Yield a warning where surely more than a tenth of a window's messages do not sound like the agent."""
    if isinstance(found.check, NoCheck) or not found.messages or found.share[0] <= FAR_OFF:
        return
    quotes = ", ".join(f"{shortened(message.text, _LONGEST_QUOTE)!r} ({message.id})" for message in found.worst)
    yield Finding(
        kind="voice_check",
        message=f"{found.agent_id}: {found.said}, by {found.check.labels} labels of its voice: {quotes}",
        remedy="read them; where the check is wrong, give some of them a thumb in `persona-pipeline view`",
        command="persona-pipeline view",
        agent_id=found.agent_id,
    )
