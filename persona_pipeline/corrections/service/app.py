"""The FastAPI application: gate, interventions, settings, statistics, health and Prometheus metrics; bodies are read strictly."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.documents.json import strict_json
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.http_server import ARRIVED, METRICS_TYPE, Access, Boundary
from persona_pipeline.base.telemetry import within_span
from persona_pipeline.corrections.background import DaemonPool
from persona_pipeline.corrections.configuration import StoredConfig, read_config, write_config
from persona_pipeline.corrections.gate import DEADLINE_SECONDS, ActionGate
from persona_pipeline.corrections.interventions import Guidance, Interventions
from persona_pipeline.corrections.judgment import MOST_AT_ONCE, within
from persona_pipeline.corrections.records import Action, Bypasses, GateDecision, Outcome
from persona_pipeline.corrections.service.passing import ModelUpstream, PassThrough
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
from persona_pipeline.corrections.statistics import (
    CorrectionStatistics,
    correction_statistics,
    forget_bypasses,
    forget_texts,
)
from persona_pipeline.judging.verdict import Backend
from persona_pipeline.version import __version__
from persona_pipeline.world.models import Window, parse_window
from persona_pipeline.world.world import World


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


_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 5.05, 6.0)


class ServiceMetrics:
    """Counts decisions, time, tokens and money of the gate, and nudges by kind."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Histogram

        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        about = "Gate checks by outcome and, for those that failed open, reason."
        self._checks = counter("persona_gate_checks", about, ("outcome", "reason"))
        self._seconds = Histogram(
            "persona_gate_check_seconds", "Wall-clock time of a gate check.", buckets=_BUCKETS, registry=self.registry
        )
        self._tokens = counter("persona_gate_tokens", "Tokens of gate checks.", ("kind",))
        self._usd = counter("persona_gate_usd", "Known price of gate checks in US dollars.")
        self._unchecked = counter("gate_unchecked", "Texts that went out unchecked, by reason.", ("reason",))
        self._nudges = counter("persona_nudges", "Nudges given before a turn.", ("kind",))
        about = "Texts that a gate that only watches would have sent back."
        self._shadow_held = counter("persona_gate_shadow_held", about)
        about = "Nudges found and not given, as the agent's corrections only watch."
        self._shadow_nudges = counter("persona_shadow_nudges", about, ("kind",))
        self._lookups = counter("persona_interventions", "Turns looked at for nudges.", ("result",))

    def decided(self, _agent_id: str, decision: GateDecision) -> None:
        """Count a decision; fits ``ActionGate(observer=...)``."""
        self._checks.labels(decision.outcome.value, decision.reason or "").inc()
        if decision.would not in (None, Action.COMMIT):
            self._shadow_held.inc()
        if decision.outcome is Outcome.FAIL_OPEN:
            self._unchecked.labels(decision.reason or "").inc()
        self._seconds.observe(decision.latency_ms / 1000)
        self._tokens.labels("input").inc(decision.usage.input_tokens)
        self._tokens.labels("output").inc(decision.usage.output_tokens)
        self._tokens.labels("cached").inc(decision.usage.cache_creation_tokens + decision.usage.cache_read_tokens)
        self._usd.inc(decision.usage.usd or 0.0)

    def bypassed(self, reason: str) -> None:
        """Count a text that went out without any check; fits ``Bypasses(observer=...)``."""
        self._unchecked.labels(reason).inc()

    def guided(self, guidance: Guidance) -> None:
        """Count a look before a turn."""
        self._lookups.labels("failed" if guidance.failed else "no_lexicon" if guidance.unread else "ok").inc()
        for nudge in guidance.nudges:
            self._nudges.labels(nudge.kind.value).inc()
        for nudge in guidance.withheld:
            self._shadow_nudges.labels(nudge.kind.value).inc()

    def text(self) -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(self.registry)


_PRUNING_SECONDS, _RETRY_SECONDS = 3600.0, 10.0
_LOGGER = logging.getLogger(__name__)


async def keep_pruning(store: Store, keep_text_days: int | None) -> None:
    """Remove old texts and bypasses every hour for as long as the service runs; a store that fails is tried again."""
    pool = DaemonPool(1, "gate-upkeep")
    while True:
        try:
            await pool.run(partial(forget_bypasses, store))
            if keep_text_days is not None:
                await pool.run(partial(forget_texts, store, keep_text_days))
            await asyncio.sleep(_PRUNING_SECONDS)
        except Exception as error:
            _LOGGER.warning("old texts are not removed now: %s", type(error).__name__)
            await asyncio.sleep(_RETRY_SECONDS)


_STORE_SECONDS = 10.0
_HEALTH_SECONDS = 1.0

Result = TypeVar("Result")
Answers = dict[int | str, dict[str, Any]]
AgentPath = Annotated[str, Path(pattern=AGENT_ID)]
# For the description alone: who may call, the boundary has seen to.
_TOKEN = [Depends(HTTPBearer(auto_error=False))]
_ERRORS: Answers = {
    403: {"model": ErrorResponse, "description": "The service has no token for configuring."},
    401: {"model": ErrorResponse, "description": "The token is missing or wrong."},
    400: {"model": ErrorResponse, "description": "The request ended before its body, or holds no valid JSON."},
    408: {"model": ErrorResponse, "description": "The body did not arrive in time."},
    413: {"model": ErrorResponse, "description": "The body is too large."},
    421: {"model": ErrorResponse, "description": "Without a token only requests to localhost are served."},
}
_NO_AGENT: Answers = {404: {"model": ErrorResponse, "description": "The store does not know it."}}
_NO_STORE: Answers = {503: {"model": ErrorResponse, "description": "The store does not answer."}}


class _Service:
    """Data shared by the routes."""

    def __init__(self, world: World, backend: Backend, deadline: float, most_at_once: int) -> None:
        self.world, self.backend = world, backend
        self.metrics = ServiceMetrics()
        self.bypasses = Bypasses(world.store, observer=self.metrics.bypassed)
        told = {"observer": self.metrics.decided, "bypasses": self.bypasses}
        self.gate = ActionGate(world, backend, deadline=deadline, most_at_once=most_at_once, **told)
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
    upstream: ModelUpstream | None = None,
) -> FastAPI:
    """Return the application.

    ``backend``: the judge of the gate, without a cache. ``access``: by default no token and localhost only. ``deadline``:
    wall-clock seconds of a gate check, from the arrival of its request. ``most_at_once``: checks judged at once; see
    ``ActionGate``. ``keep_text_days``: older texts in the log of corrections are emptied; None: they are kept. ``upstream``: the
    server for all other requests under ``/v1``, whose answers the gate checks. Raises ``ConfigError``: the world's nudges are not
    valid.
    """
    service = _Service(world, backend, deadline, most_at_once)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        keeping = asyncio.create_task(keep_pruning(world.store, keep_text_days))
        try:
            async with service.gate:
                yield
        finally:
            keeping.cancel()

    app = FastAPI(
        title="persona-pipeline corrections",
        description="Keeps agents in character while they run. Whatever goes wrong, a message is never held back.",
        version=__version__,
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
    if upstream is not None:
        app.add_middleware(PassThrough, upstream=upstream, access=access or Access(), gate=service.gate)
    return app


def _corrections(service: _Service) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["corrections"], dependencies=_TOKEN, route_class=StrictRoute)

    @router.post("/gate", summary="May this text be sent?")
    async def gate(request: GateRequest, http: Request) -> GateResponse:
        with within_span(http.headers.get("traceparent"), service.world.settings):
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
        return GateResponse.model_validate(decision)

    @router.post("/interventions", summary="What should the agent be told before its next turn?")
    async def interventions(request: InterventionsRequest) -> InterventionsResponse:
        guidance = await service.interventions.before_turn(request.agent_id, channel=request.channel)
        service.metrics.guided(guidance)
        return InterventionsResponse.model_validate(guidance)

    return router


def _administration(service: _Service) -> APIRouter:
    router = APIRouter(
        prefix="/v1", tags=["administration"], dependencies=_TOKEN, responses=_NO_STORE, route_class=StrictRoute
    )
    store = service.world.store

    @router.get("/agents/{agent_id}/config", summary="An agent's settings", responses=_NO_AGENT)
    async def get_config(agent_id: AgentPath) -> ConfigResponse:
        return ConfigResponse.of(await service.store(lambda: _known(read_config(store, agent_id))))

    @router.put("/agents/{agent_id}/config", summary="Set an agent's settings", responses=_NO_AGENT)
    async def put_config(agent_id: AgentPath, request: ConfigRequest) -> ConfigResponse:
        """Needs the token for configuring; without one in the service's environment settings are not changed over HTTP."""
        return ConfigResponse.of(await service.store(lambda: write_config(store, agent_id, request)))

    @router.get("/statistics", summary="What the gate did, by action")
    async def statistics(query: Annotated[StatisticsQuery, Query()]) -> CorrectionStatistics:
        span = None if query.window is None else Window.ending(datetime.now(UTC), parse_window(query.window))
        agents = None if query.agent_id is None else [query.agent_id]
        return await service.store(lambda: correction_statistics(store, span, agent_ids=agents))

    return router


def _operations(service: _Service) -> APIRouter:
    router = APIRouter(tags=["operations"])

    @router.get("/health", summary="Is the service up, and its store?")
    async def health() -> HealthResponse:
        status = "ok"
        try:
            await service.store(service.world.store.ping, _HEALTH_SECONDS)
        except HTTPException:
            status = "degraded"
        return HealthResponse(status=status, judge=service.backend.name, version=__version__)

    @router.get(
        "/metrics",
        summary="Prometheus metrics",
        response_class=Response,
        responses={200: {"content": {METRICS_TYPE: {}}}},
        dependencies=_TOKEN,
    )
    async def metrics() -> Response:
        return Response(await asyncio.to_thread(service.metrics.text), media_type=METRICS_TYPE)

    return router


def _known(config: StoredConfig) -> StoredConfig:
    if config.source is None:
        raise ConfigError(f"agent {config.agent_id!r} has no settings; write personas/{config.agent_id}.yaml")
    return config


async def _invalid(_: Request, error: Exception) -> Response:
    """A validation error without the input, which may hold what no JSON can (NaN, lone surrogates)."""
    problems = error.errors() if isinstance(error, RequestValidationError) else []
    shown = [{"loc": list(item["loc"]), "msg": item["msg"], "type": item["type"]} for item in problems]
    # Names of unknown keys may hold lone surrogates: JSON in ASCII writes them as escapes.
    return Response(json.dumps({"detail": shown}), status_code=422, media_type="application/json")
