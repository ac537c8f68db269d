"""Routes whose JSON bodies are read strictly: a key that stands twice is an error, not the last one's."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from persona_pipeline.documents import strict_json


class StrictRequest(Request):
    """A request whose body is read as ``strict_json``."""

    async def json(self) -> Any:
        """Return the body's value; raises ``JSONDecodeError`` or ``UnicodeDecodeError``."""
        return strict_json((await self.body()).decode("utf-8"))


class StrictRoute(APIRoute):
    """A route that takes ``StrictRequest``."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return strict
