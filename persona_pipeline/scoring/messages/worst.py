"""The worst messages of an agent, each with what it answered and with an earlier message that does it right."""

from collections.abc import Sequence

from persona_pipeline.scoring.messages.verdicts import MessageVerdict, MessageVerdicts, Role, SaidLine, WorstMessage
from persona_pipeline.world.models import Message, conversations

MOST_WORST = 5
_LONGEST = 500


def worst_messages(
    read: MessageVerdicts, series: Sequence[MessageVerdict], said: Sequence[Message]
) -> list[WorstMessage]:
    """Return at most five messages out of character: those that break the most claims first, of equal ones the newest.

    Args:
        read: the verdicts on the window.
        series: verdicts on the agent's messages up to the end of the window, from which the examples come. An example is older than
            its message and than the drift, and from the same place where possible.
        said: messages of everybody in the places where the agent spoke, in order of time. A message that is not among them is
            neither an answered message nor an example.
    """
    out = [item for item in read.verdicts if item.verdict is Role.OUT]
    out.sort(key=lambda item: (len(item.claims), item.said_at, item.message), reverse=True)
    if not out:
        return []
    texts, answered, used = {message.id: message for message in said}, _answered(read.agent_id, said), set[str]()
    right = [texts[item.message] for item in series if item.verdict is Role.IN and item.message in texts]
    found = list[WorstMessage]()
    for item in out[:MOST_WORST]:
        example = _example(item, [one for one in right if _is_before(one, item, read)], used)
        used |= {example.id} if example else set()
        found.append(WorstMessage(verdict=item, answered=_line(answered.get(item.message)), example=_line(example)))
    return found


def _answered(agent_id: str, said: Sequence[Message]) -> dict[str, Message]:
    """Return the last message of somebody else in the conversation, by id of the agent's message."""
    found, latest = dict[str, Message](), dict[int, Message]()
    for message, conversation in zip(said, conversations(said), strict=True):
        if message.agent_id != agent_id:
            latest[conversation] = message
        elif conversation in latest:
            found[message.id] = latest[conversation]
    return found


def _is_before(message: Message, item: MessageVerdict, read: MessageVerdicts) -> bool:
    return message.created_at < min(item.said_at, read.drift.since if read.drift else item.said_at)


def _example(item: MessageVerdict, before: Sequence[Message], used: set[str]) -> Message | None:
    """Return the newest message of the same place, one that is not an example already where possible."""
    place = item.conversation.rpartition(" ")[0]
    rank = [
        (message.conversation == place, message.id not in used, message.created_at, message.id) for message in before
    ]
    return before[rank.index(max(rank))] if rank else None


def _line(message: Message | None) -> SaidLine | None:
    if message is None:
        return None
    text = message.text if len(message.text) <= _LONGEST else f"{message.text[: _LONGEST - 1]}…"
    return SaidLine(message_id=message.id, speaker=message.agent_id, quote=text)
