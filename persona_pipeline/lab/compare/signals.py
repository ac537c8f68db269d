"""Signals of answers to an interview: own voice, repetition, late turns, cost and latency.

Scores go from 0 to 9, high is good, and are compared by the same bets as judged ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, geometric_mean, median

import numpy as np

from persona_pipeline.lab.compare.scenes import Scene, SceneAnswers, answer_id
from persona_pipeline.lab.results import AnswerExpense
from persona_pipeline.lab.states import SideAgent
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
    def of(cls, world: World, agent: SideAgent, scenes: Sequence[Scene], compared: Sequence[str]) -> "SignalReader":
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
    return [scores.get(answer_id(scene, place)) for place in range(turns)]


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
