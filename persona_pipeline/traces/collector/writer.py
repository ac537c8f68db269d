"""One writer for all requests: what waits is written together, and whoever waits is answered when it is stored."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.exc import InterfaceError, OperationalError

from persona_pipeline.traces.collector.metrics import CollectorMetrics
from persona_pipeline.traces.keeping import Kept, forget_pieces, keep_pieces
from persona_pipeline.traces.pieces import Piece
from persona_pipeline.world.world import World

# Pieces that one transaction takes: what waits meanwhile goes with the next.
_MOST_TOGETHER = 5000
_FORGET_SECONDS = 3600.0
_LOGGER = logging.getLogger("persona_pipeline.traces.collector")


class StoreUnavailableError(Exception):
    """The store cannot be written just now; it is worth trying again."""


@dataclass(frozen=True)
class _Waiting:
    pieces: Sequence[Piece]
    stored: asyncio.Future[None]


class Writer:
    """Writes pieces in the order of their coming; use it as an async context manager, which ends when all is written.

    Args:
        keep_days: after how many days pieces are dropped.
    """

    def __init__(self, world: World, metrics: CollectorMetrics, keep_days: float) -> None:
        self._world, self._metrics, self._keep = world, metrics, timedelta(days=keep_days)
        self._queue: asyncio.Queue[_Waiting | None] = asyncio.Queue()

    async def __aenter__(self) -> "Writer":
        self._writing = asyncio.create_task(self._write())
        self._forgetting = asyncio.create_task(self._forget())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._forgetting.cancel()
        self._queue.put_nowait(None)
        await self._writing

    async def store(self, pieces: Sequence[Piece]) -> None:
        """Return when these pieces are stored.

        Raises:
            StoreUnavailableError: they are not, and may be later.
            Exception: what the store said of them.
        """
        waiting = _Waiting(pieces, asyncio.get_running_loop().create_future())
        self._queue.put_nowait(waiting)
        await asyncio.shield(waiting.stored)

    async def _write(self) -> None:
        while (first := await self._queue.get()) is not None:
            lot, size = [first], len(first.pieces)
            while size < _MOST_TOGETHER and not self._queue.empty():
                more = self._queue.get_nowait()
                if more is None:
                    self._queue.put_nowait(None)
                    break
                lot.append(more)
                size += len(more.pieces)
            await self._settle(lot)

    async def _settle(self, lot: Sequence[_Waiting]) -> None:
        try:
            await self._keep_all([piece for waiting in lot for piece in waiting.pieces])
        except Exception as error:
            if len(lot) > 1 and not isinstance(error, StoreUnavailableError):
                # One request must not be the reason why others' are not stored.
                for waiting in lot:
                    await self._settle([waiting])
                return
            _LOGGER.error("not stored: %s", error, exc_info=not isinstance(error, StoreUnavailableError))
            for waiting in lot:
                _answer(waiting.stored, error)
            return
        for waiting in lot:
            _answer(waiting.stored, None)

    async def _keep_all(self, pieces: Sequence[Piece]) -> None:
        try:
            kept: Kept = await asyncio.to_thread(keep_pieces, self._world, pieces)
        except (OperationalError, InterfaceError) as error:
            raise StoreUnavailableError(f"the store cannot be written ({error.orig})") from error
        self._metrics.kept(kept, len(pieces))

    async def _forget(self) -> None:
        while True:
            try:
                await asyncio.to_thread(forget_pieces, self._world.store, self._keep, self._world.clock())
            except Exception:
                _LOGGER.warning("pieces of old traces could not be dropped", exc_info=True)
            await asyncio.sleep(_FORGET_SECONDS)


def _answer(stored: asyncio.Future[None], error: Exception | None) -> None:
    """Whoever asked may be gone."""
    if stored.done():
        return
    if error is None:
        stored.set_result(None)
    else:
        stored.set_exception(error)
