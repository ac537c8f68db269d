"""Schemathesis sends every route what the API description allows and what it forbids."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from persona_pipeline.base.http_server import Access
from persona_pipeline.corrections.service.app import create_app
from persona_pipeline.world import World
from tests.corrections.support import TextBackend

TOKEN = "fuzz-token"
ROUTES = [
    ("/v1/gate", "POST"),
    ("/v1/interventions", "POST"),
    ("/v1/agents/{agent_id}/config", "GET"),
    ("/v1/agents/{agent_id}/config", "PUT"),
    ("/v1/statistics", "GET"),
    ("/health", "GET"),
    ("/metrics", "GET"),
]


@pytest.fixture
def api(world: World) -> Iterator[schemathesis.BaseSchema]:
    app = create_app(world, TextBackend(), access=Access(TOKEN))
    # The test brings the token: a request that is wrong for its token alone would be right after all.
    config = schemathesis.Config.from_dict({"generation": {"with-security-parameters": False}})
    yield schemathesis.openapi.from_asgi("/openapi.json", app, config=config)


def test_every_route_is_fuzzed(api: schemathesis.BaseSchema) -> None:
    described = {(item.ok().path, item.ok().method.upper()) for item in api.get_all_operations()}
    assert described == set(ROUTES)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize(("path", "method"), ROUTES)
def test_every_response_is_as_described(
    api: schemathesis.BaseSchema, path: str, method: str, mode: GenerationMode
) -> None:
    operation = api[path][method]
    if mode is GenerationMode.NEGATIVE and path in ("/health", "/metrics"):
        # They take no input that could be wrong.
        return

    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: schemathesis.Case) -> None:
        case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"})

    send()
