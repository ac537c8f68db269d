"""Answers of both versions: signals without a judge (own voice, repetition, late turns, cost, latency), and lines to read.

Scores go from 0 to 9, high is good, and are compared by the same bets as judged ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, geometric_mean, median

import numpy as np

from persona_pipeline.base.text import shortened
from persona_pipeline.lab.answering import SceneAnswers
from persona_pipeline.lab.results import AgentDifference, AnswerExpense, SceneClaim, ScoreChange, SideBySide
from persona_pipeline.lab.scenes import Scene
from persona_pipeline.lab.versions import VersionAgent
from persona_pipeline.scoring.adherence import SHORTEST, message_scores
from persona_pipeline.scoring.results import HIGHEST, DimensionEvaluation
from persona_pipeline.scoring.style.model import FEWEST_CONVERSATIONS, FEWEST_OWN, VoiceModel, learn_voice
from persona_pipeline.scoring.style.monitor import stored_voice
from persona_pipeline.scoring.text.agreement import UNKNOWN, language_of
from persona_pipeline.scoring.text.said_again import find_said_again
from persona_pipeline.world.propositions.models import Catchphrase
from persona_pipeline.world.world import World

VOICE, SAID_AGAIN, LATE_TURNS, ADHERENCE = "voice", "said_again", "late_turns", "adherence"
# Turns that a scene needs for a row.
LEAST_TURNS = {SAID_AGAIN: 2, LATE_TURNS: SHORTEST}
# Number of the agent's own messages that show its usual level.
_LATEST = 200
COST, LATENCY = "cost_usd", "latency_seconds"


@dataclass(frozen=True)
class SignalReader:
    """Reads an agent's answers without a judge.

    Attributes:
        rows: the signals that can be read.
        unknown: the others, and why.
        voice: the agent's own, learnt from its messages; None: there are too few.
        history: its latest messages as pairs of conversation and text: repetitions in them are usual for it.
    """

    rows: tuple[str, ...]
    unknown: Mapping[str, str] = field(default_factory=dict)
    voice: VoiceModel | None = None
    history: Sequence[tuple[str, str]] = ()
    catchphrases: Sequence[Catchphrase] = ()

    @classmethod
    def of(cls, world: World, agent: VersionAgent, scenes: Sequence[Scene], compared: Sequence[str]) -> "SignalReader":
        """Return the reader of an agent's answers to some scenes. Its voice is the stored one, else it is learnt."""
        agent_id = agent.persona.agent_id
        own, known = world.messages(agent_id=agent_id), stored_voice(world.store, agent_id)
        voice = (known and known.model) or learn_voice(agent_id, world.messages(), root=world.root)
        unknown = {}
        if voice is None or not voice.limits:
            few = f"{FEWEST_OWN} are needed, in {FEWEST_CONVERSATIONS} conversations"
            voice, unknown[VOICE] = None, f"its voice cannot be learnt from {len(own)} messages of its own: {few}"
        longest = max((len(scene.lines) for scene in scenes), default=0)
        rows = [VOICE] * (voice is not None) + [SAID_AGAIN] * (longest >= LEAST_TURNS[SAID_AGAIN])
        rows += [LATE_TURNS] * (longest >= SHORTEST and ADHERENCE in compared)
        fluency = agent.sets.get("fluency")
        claims = fluency.propositions if fluency else None
        latest = [(message.conversation, message.text) for message in own[-_LATEST:]]
        return cls(tuple(rows), unknown, voice, latest, claims.catchphrases if claims else ())

    def read(self, scene: Scene, texts: Sequence[str], judged: Mapping[str, DimensionEvaluation]) -> dict[str, float]:
        """Return the scores (0-9) of one side's answers, by row."""
        turns = [score for score in turn_scores(scene, len(texts), judged) if score is not None]
        late = turns[len(turns) // 2 :] if len(turns) >= SHORTEST else []
        found = {
            VOICE: voice_score(self.voice, texts) if self.voice else None,
            SAID_AGAIN: repetition_score(texts, self.history, self.catchphrases),
            LATE_TURNS: fmean(late) if late else None,
        }
        return {name: score for name, score in found.items() if score is not None and name in self.rows}


def voice_score(voice: VoiceModel, texts: Sequence[str]) -> float | None:
    """Return how similar answers are to the agent's voice: 9 as its own messages, 0 as the nearest other voice.

    None: they are in another language than its messages, or no other voice is known.
    """
    if language_of(texts) not in (voice.provenance.language, UNKNOWN):
        return None
    way = voice.way(texts)
    return HIGHEST * min(1.0, max(0.0, 1 - max(way.values()))) if way else None


def repetition_score(
    texts: Sequence[str], history: Sequence[tuple[str, str]] = (), catchphrases: Sequence[Catchphrase] = ()
) -> float | None:
    """Return 9 where no answer says an earlier one again, 0 where each does; None for a single one."""
    if len(texts) < LEAST_TURNS[SAID_AGAIN]:
        return None
    # No conversation has an empty name.
    said, known = [*history, *(("", text) for text in texts)], len(history)
    again = {item.place - known for item in find_said_again(said, catchphrases, since=known, known=known)}
    # Where every answer is the same, no word of it is rare.
    again |= {place for place, text in enumerate(texts) if text in texts[:place]}
    return HIGHEST * (1 - len(again) / (len(texts) - 1))


def turn_scores(scene: Scene, turns: int, judged: Mapping[str, DimensionEvaluation]) -> list[float | None]:
    """Return the adherence of each answer that was judged alone; None for the others."""
    scores = message_scores(judged[ADHERENCE]) if ADHERENCE in judged else {}
    return [scores.get(scene.answer_id(place)) for place in range(turns)]


def expenses_of(answered: Sequence[tuple[SceneAnswers, SceneAnswers]]) -> dict[str, AnswerExpense]:
    """Return the cost and latency of answers on both sides, where targets report them."""
    read = {
        COST: lambda side: [output.cost_usd for output in side.outputs],
        LATENCY: lambda side: [output.duration_ms and output.duration_ms / 1000 for output in side.outputs],
    }
    found = {}
    for name, values in read.items():
        pairs = [(values(before), values(after)) for before, after in answered]
        pairs = [pair for pair in pairs if all(value and value > 0 for side in pair for value in side)]
        if pairs:
            found[name] = _expense(pairs)
    return found


def _expense(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> AnswerExpense:
    # Ratios do not depend on the length of a scene.
    ratio = geometric_mean(fmean(after) / fmean(before) for before, after in pairs)
    before, after = ([value for pair in pairs for value in pair[side]] for side in (0, 1))
    return AnswerExpense(
        before=median(before),
        after=median(after),
        before_p95=float(np.quantile(before, 0.95)),
        after_p95=float(np.quantile(after, 0.95)),
        ratio=ratio,
        scenes=len(pairs),
    )


# Scenes that are shown, claims of each, and characters of a line.
MOST_SHOWN, _MOST_CLAIMS, _MOST_CHARACTERS = 3, 3, 2_000
_Judged = Mapping[str, DimensionEvaluation]


@dataclass(frozen=True)
class AnsweredScene:
    """A scene that both answered: the answers, their judged dimensions, and their signals (0-9)."""

    scene: Scene
    answers: tuple[SceneAnswers, SceneAnswers]
    judged: tuple[_Judged, _Judged]
    signals: tuple[Mapping[str, float], Mapping[str, float]]

    def turns(self, side: int) -> list[float | None]:
        """Return the score of each answer of a side (0 or 1) that was judged alone."""
        return turn_scores(self.scene, len(self.answers[side].texts), self.judged[side])

    def scores(self, moved: Sequence[str]) -> dict[str, tuple[float, float]]:
        """Return the scores of some rows before and after, where they differ in this scene."""
        before, after = (
            {name: item.score for name, item in judged.items()} | dict(signals)
            for judged, signals in zip(self.judged, self.signals, strict=True)
        )
        pairs = [(name, before.get(name), after.get(name)) for name in moved]
        return {
            name: (one, other) for name, one, other in pairs if one is not None and other is not None and other != one
        }

    def claims(self, dimensions: Sequence[str]) -> list[tuple[SceneClaim, str]]:
        """Return claims with another score, the largest change first, each with the id of the quoted message."""
        found = list[tuple[SceneClaim, str]]()
        for name in (name for name in dimensions if name in self.judged[0]):
            for key, after in self.judged[1][name].propositions.items():
                before = self.judged[0][name].propositions.get(key)
                if before and before.score is not None and after.score is not None and after.score != before.score:
                    last = [item for item in after.evidence if item.verified][-1:]
                    quote, place = (
                        (shortened(last[0].quote, _MOST_CHARACTERS), last[0].message_id or "") if last else ("", "")
                    )
                    claim = SceneClaim(claim=f"{name}/{key}", before=before.score, after=after.score, quote=quote)
                    found.append((claim, place))
        return sorted(found, key=lambda item: -abs(item[0].after - item[0].before))[:_MOST_CLAIMS]

    def side_by_side(self, moved: Sequence[str]) -> SideBySide:
        """Return the most telling line: that with the largest change, else a repeated, a quoted, or the last one."""
        scores, claims = self.scores(moved), self.claims(moved)
        turns = zip(self.turns(0), self.turns(1), strict=True) if {ADHERENCE, LATE_TURNS} & scores.keys() else ()
        known = [(one, other, n) for n, (one, other) in enumerate(turns) if one is not None and other is not None]
        changes = [(abs(one - other), n) for one, other, n in known]
        ids = [self.scene.answer_id(place) for place in range(len(self.scene.lines))]
        quoted = [ids.index(name) for _, name in claims if name in ids]
        one, other = scores.get(SAID_AGAIN, (0.0, 0.0))
        said = [("", text) for text in self.answers[other < one].texts] if SAID_AGAIN in scores else []
        again = [item.place for item in find_said_again(said)] if said else []
        place = max(changes)[1] if changes else [*again, *quoted, len(ids) - 1][0]
        line = self.scene.lines[place] or (self.scene.context[-1].text if self.scene.context else "")
        shown = (line, *(own.texts[place] for own in self.answers))
        asked, before, after = (shortened(text, _MOST_CHARACTERS) for text in shown)
        return SideBySide(
            scene=self.scene.id, kind=self.scene.kind, turn=place + 1, asked=asked, before=before, after=after,
            scores=scores, claims=tuple(claim for claim, _ in claims),
        )  # fmt: skip


def with_lines(agent: AgentDifference, answered: Sequence[AnsweredScene]) -> AgentDifference:
    """Return the comparison of an agent with the expenses of its answers and the lines to read."""
    moved = [name for name, item in agent.rows.items() if item.moved in (ScoreChange.FELL, ScoreChange.ROSE)]
    moved += [item.dimension for item in agent.moved if item.dimension not in moved]
    changes = [(max((abs(a - b) for b, a in item.scores(moved).values()), default=0.0), item) for item in answered]
    shown = [item for change, item in sorted(changes, key=lambda pair: -pair[0])[:MOST_SHOWN] if change > 0]
    return agent.model_copy(
        update={
            "lines": tuple(item.side_by_side(moved) for item in shown),
            "expenses": expenses_of([item.answers for item in answered]) if agent.signals else {},
        }
    )
