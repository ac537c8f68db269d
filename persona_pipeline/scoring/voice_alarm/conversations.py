"""Which of an agent's messages belong together: those of one conversation are not independent of each other."""

from datetime import timedelta

from persona_pipeline.world.models import Message

PAUSE = timedelta(hours=1)


class Conversations:
    """Numbers an agent's conversations as its messages come: one place, without a pause of an hour."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[int, Message]] = {}
        self._following = 0

    def number(self, message: Message) -> int:
        """Return the number of the message's conversation, from 0."""
        known = self._latest.get(message.conversation)
        if known is not None and message.created_at - known[1].created_at < PAUSE:
            number = known[0]
        else:
            number = self._following
            self._following += 1
        self._latest[message.conversation] = (number, message)
        return number
