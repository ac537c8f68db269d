"""The FastAPI application: gate, interventions, settings, statistics, health and metrics."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, TypeVar

import sqlalchemy as sa
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer

from persona_pipeline.corrections.background import DaemonPool
from persona_pipeline.corrections.bypasses import Bypasses
from persona_pipeline.corrections.configuration import StoredConfig, read_config, write_config
from persona_pipeline.corrections.gate import DEADLINE_SECONDS, ActionGate
from persona_pipeline.corrections.interventions import Interventions
from persona_pipeline.corrections.judgment import MOST_AT_ONCE, within
from persona_pipeline.corrections.keeping import keep_in_order
from persona_pipeline.corrections.service.boundary import ARRIVED, Access, Boundary
from persona_pipeline.corrections.service.metrics import ServiceMetrics
from persona_pipeline.corrections.service.strict import StrictRoute
from persona_pipeline.corrections.service.wire import (
    AGENT_ID,
    ConfigRequest,
    ConfigResponse,
    ErrorResponse,
    GateRequest,
    GateResponse,
    HealthResponse,
    InterventionsRequest,
    InterventionsResponse,
    StatisticsQuery,
)
from persona_pipeline.corrections.statistics import CorrectionStatistics, correction_statistics
from persona_pipeline.errors import ConfigError
from persona_pipeline.judging.verdict import Backend
from persona_pipeline.telemetry.events import within_span
from persona_pipeline.world.models import Window, parse_window
from persona_pipeline.world.world import World

_STORE_SECONDS = 10.0
_HEALTH_SECONDS = 1.0
# Checks that one request for statistics sums up; the rest is done in the background.
_MOST_NEW = 5000
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Result = TypeVar("Result")
AgentPath = Annotated[str, Path(pattern=AGENT_ID)]
_ERRORS: dict[int | str, dict[str, Any]] = {
    403: {"model": ErrorResponse, "description": "The service has no token for configuring."},
    401: {"model": ErrorResponse, "description": "The token is missing or wrong."},
    400: {"model": ErrorResponse, "description": "The request ended before its body, or holds no valid JSON."},
    408: {"model": ErrorResponse, "description": "The body did not arrive in time."},
    413: {"model": ErrorResponse, "description": "The body is too large."},
    421: {"model": ErrorResponse, "description": "Without a token only requests to localhost are served."},
}
_NO_AGENT: dict[int | str, dict[str, Any]] = {
    404: {"model": ErrorResponse, "description": "The store does not know it."}
}
_NO_STORE: dict[int | str, dict[str, Any]] = {
    503: {"model": ErrorResponse, "description": "The store does not answer."}
}


class _Service:
    """What the routes share."""

    def __init__(self, world: World, backend: Backend, deadline: float, most_at_once: int) -> None:
        self.world, self.backend = world, backend
        self.metrics = ServiceMetrics()
        self.bypasses = Bypasses(world.store, observer=self.metrics.bypassed)
        self.gate = ActionGate(
            world,
            backend,
            deadline=deadline,
            observer=self.metrics.decided,
            most_at_once=most_at_once,
            bypasses=self.bypasses,
        )
        self.interventions = Interventions(world)
        self._pool = DaemonPool(4, "service-store")

    async def store(self, call: Callable[[], Result], seconds: float = _STORE_SECONDS) -> Result:
        """Run a call on the store; an answer to the client whatever happens."""
        try:
            return await within(self._pool.run(call), time.monotonic() + seconds)
        except ConfigError as error:
            raise HTTPException(404, str(error)) from error
        except Exception as error:
            raise HTTPException(503, f"the store does not answer ({type(error).__name__}); try again") from error


def create_app(
    world: World,
    backend: Backend,
    *,
    access: Access | None = None,
    deadline: float = DEADLINE_SECONDS,
    most_at_once: int = MOST_AT_ONCE,
    keep_text_days: int | None = None,
) -> FastAPI:
    """Return the application.

    Args:
        backend: the judge of the gate, without a cache.
        access: by default no token and localhost only.
        deadline: wall-clock seconds of one gate check, from when its request arrives.
        most_at_once: checks judged at once; see ``ActionGate``.
        keep_text_days: texts in the log of corrections that are older lose their words; None: they are kept.

    Raises:
        ConfigError: the world's nudges are not valid.
    """
    service = _Service(world, backend, deadline, most_at_once)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        keeping = asyncio.create_task(keep_in_order(world.store, keep_text_days))
        try:
            async with service.gate:
                yield
        finally:
            keeping.cancel()

    app = FastAPI(
        title="persona-pipeline corrections",
        description="Keeps agents in character while they run. Whatever goes wrong, a message is never held back.",
        version=_version(),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=_ERRORS,
    )
    app.include_router(_corrections(service))
    app.include_router(_administration(service))
    app.include_router(_operations(service))
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_middleware(Boundary, access=access or Access(), bypassed=service.bypasses.count)
    return app


def _corrections(service: _Service) -> APIRouter:
    router = APIRouter(
        prefix="/v1",
        tags=["corrections"],
        dependencies=[Depends(HTTPBearer(auto_error=False))],
        route_class=StrictRoute,
    )

    @router.post("/gate", summary="May this text be sent?")
    async def gate(request: GateRequest, http: Request) -> GateResponse:
        with within_span(http.headers.get("traceparent")):
            decision = await service.gate.check(
                request.agent_id,
                request.text,
                channel=request.channel,
                recipient=request.recipient,
                attempt=request.attempt,
                action_id=request.action_id,
                run_id=request.run_id,
                arrived=http.scope.get(ARRIVED),
            )
        alarm = service.interventions.voices.known(request.agent_id)
        service.metrics.heard(request.agent_id, alarm)
        return GateResponse.of(decision, alarm)

    @router.post("/interventions", summary="What should the agent be told before its next turn?")
    async def interventions(request: InterventionsRequest) -> InterventionsResponse:
        guidance = await service.interventions.before_turn(request.agent_id, channel=request.channel)
        service.metrics.guided(guidance)
        service.metrics.heard(request.agent_id, guidance.voice_alarm)
        return InterventionsResponse.of(guidance)

    return router


def _administration(service: _Service) -> APIRouter:
    router = APIRouter(
        prefix="/v1",
        tags=["administration"],
        dependencies=[Depends(HTTPBearer(auto_error=False))],
        responses=_NO_STORE,
        route_class=StrictRoute,
    )
    store = service.world.store

    @router.get("/agents/{agent_id}/config", summary="An agent's settings", responses=_NO_AGENT)
    async def get_config(agent_id: AgentPath) -> ConfigResponse:
        return ConfigResponse.of(await service.store(lambda: _known(read_config(store, agent_id))))

    @router.put("/agents/{agent_id}/config", summary="Set an agent's settings", responses=_NO_AGENT)
    async def put_config(agent_id: AgentPath, request: ConfigRequest) -> ConfigResponse:
        """Needs the token for configuring; without one in the service's environment settings are not changed over HTTP."""
        return ConfigResponse.of(await service.store(lambda: write_config(store, agent_id, request.settings())))

    @router.get("/statistics", summary="What the gate did, by action")
    async def statistics(query: Annotated[StatisticsQuery, Query()]) -> CorrectionStatistics:
        span = None if query.window is None else Window.ending(datetime.now(UTC), parse_window(query.window))
        agents = None if query.agent_id is None else [query.agent_id]
        return await service.store(lambda: correction_statistics(store, span, agent_ids=agents, most_new=_MOST_NEW))

    return router


def _operations(service: _Service) -> APIRouter:
    router = APIRouter(tags=["operations"])

    @router.get("/health", summary="Is the service up, and its store?")
    async def health() -> HealthResponse:
        try:
            await service.store(lambda: _ping(service.world), _HEALTH_SECONDS)
        except HTTPException:
            return HealthResponse(status="degraded", judge=service.backend.name, version=_version())
        return HealthResponse(status="ok", judge=service.backend.name, version=_version())

    @router.get(
        "/metrics",
        summary="Prometheus metrics",
        response_class=Response,
        responses={200: {"content": {_METRICS_TYPE: {}}}},
        dependencies=[Depends(HTTPBearer(auto_error=False))],
    )
    async def metrics() -> Response:
        return Response(await asyncio.to_thread(service.metrics.text), media_type=_METRICS_TYPE)

    return router


def _known(config: StoredConfig) -> StoredConfig:
    if config.source is None:
        raise ConfigError(f"agent {config.agent_id!r} has no settings; write personas/{config.agent_id}.yaml")
    return config


def _ping(world: World) -> None:
    with world.store.connect() as connection:
        connection.execute(sa.select(1))


async def _invalid(_: Request, error: Exception) -> Response:
    """A validation error without the input, which may hold what no JSON can (NaN, lone surrogates)."""
    problems = error.errors() if isinstance(error, RequestValidationError) else []
    shown = [{"loc": list(item["loc"]), "msg": item["msg"], "type": item["type"]} for item in problems]
    # Names of unknown keys may hold lone surrogates: JSON in ASCII writes them as escapes.
    return Response(json.dumps({"detail": shown}), status_code=422, media_type="application/json")


def _version() -> str:
    try:
        return version("persona-pipeline")
    except PackageNotFoundError:
        return "unknown"
