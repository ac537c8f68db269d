"""Server-sent events: a stream of bytes as events, in time that is linear in its length."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

# Bytes of one event. A longer one is not read, and neither is what comes after it.
MOST_EVENT = 1024 * 1024
# A line ends with CR LF, LF or CR; an empty line ends an event. Atomic: CR LF is one end of a line and never two.
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
# Of an end that is four bytes long, so many may be there already.
_PART_OF_END = 3
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class ServerEvent:
    """The bytes of an event as they came. ``too_large``: they are a part of an event, or of what follows it, and are not read."""

    raw: bytes
    too_large: bool = False

    @property
    def data(self) -> bytes | None:
        """The event's data; None: it has none, as a comment."""
        lines = self.raw.removeprefix(_BYTE_ORDER_MARK).splitlines()
        found = [line[5:] for line in lines if line.startswith(b"data:")]
        return b"\n".join(found) if found else None


async def server_events(chunks: AsyncIterator[bytes], most: int = MOST_EVENT) -> AsyncIterator[ServerEvent]:
    """Yield the events of a stream; together their bytes are those of the chunks.

    ``most``: bytes of an event. From the first that is larger on, all that comes is yielded as ``too_large``.
    """
    held, searched, too_large = bytearray(), 0, False
    async for chunk in chunks:
        if too_large:
            yield ServerEvent(chunk, too_large=True)
            continue
        held += chunk
        start = 0
        # Each byte is searched once: only the end of what is held may belong to an end that goes on in the chunk.
        position = max(0, searched - _PART_OF_END)
        while (found := _EVENT_END.search(held, position)) and found.end() - start <= most:
            yield ServerEvent(bytes(held[start : found.end()]))
            start = position = found.end()
        del held[:start]
        searched = len(held)
        too_large = found is not None or searched > most
        if too_large:
            yield ServerEvent(bytes(held), too_large=True)
            held.clear()
    if held:
        yield ServerEvent(bytes(held))
