"""How characters fare in the course of long conversations, by agent and version of its persona."""

from dataclasses import asdict
from typing import Any

from persona_pipeline.evaluation.history import judged_messages
from persona_pipeline.evaluation.report import AgentReport
from persona_pipeline.scoring.fading import SHORTEST, Fading, MessageValue, fading, turns_of
from persona_pipeline.scoring.text.ngrams import message_shares, ngram_score
from persona_pipeline.world import World
from persona_pipeline.world.models import Message, Window

# Of windows before the newest one, with the same persona.
MOST_WINDOWS = 12
VERSION_DIGITS = 8


def fading_statistics(world: World, report: AgentReport) -> list[dict[str, Any]]:
    """Return the curves of an agent under the persona it has now; nothing where too few conversations are long enough.

    Adherence is read where single messages were judged (``level: action``), repetition everywhere.
    """
    evaluation = report.evaluation
    persona = evaluation.provenance.get("persona_hash")
    if evaluation.synthetic or persona is None or not _is_long(world, report):
        return []
    runs = judged_messages(world.store, evaluation.agent_id, persona, most=MOST_WINDOWS)
    starts = [run.window_start for run in runs]
    start = min((moment for moment in starts if moment), default=None) if all(starts) else None
    messages = world.messages(Window(evaluation.window_end, start), agent_id=evaluation.agent_id)
    judged = {message_id: score for run in runs for message_id, score in run.scores.items()}
    found = {"adherence": fading(turns_of(messages, judged)), "repetition": fading(_repetition(messages))}
    return [_section(name, persona, curve) for name, curve in found.items() if curve is not None]


def _is_long(world: World, report: AgentReport) -> bool:
    # A look at one window first: most logs have no long conversations, and their histories need not be read.
    evaluation = report.evaluation
    window = Window(evaluation.window_end, evaluation.window_start)
    counts: dict[str, int] = {}
    for message in world.messages(window, agent_id=evaluation.agent_id):
        counts[message.conversation] = counts.get(message.conversation, 0) + 1
    return max(counts.values(), default=0) >= SHORTEST


def _repetition(messages: list[Message]) -> dict[str, list[MessageValue]]:
    said: dict[str, list[Message]] = {}
    for message in messages:
        said.setdefault(message.conversation, []).append(message)
    return {
        conversation: [
            MessageValue(number, None if share is None else ngram_score(share))
            for number, share in enumerate(message_shares([m.text for m in own], 3), start=1)
        ]
        for conversation, own in said.items()
    }


def _section(signal: str, persona: str, curve: Fading) -> dict[str, Any]:
    return {**asdict(curve), "text": curve.text, "version": persona[:VERSION_DIGITS], "signal": signal}
