"""Schemathesis sends every route what the API description allows and what it forbids."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from persona_pipeline.base.database.engine import open_store
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


@pytest.fixture(scope="module")
def api(finished_world: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[schemathesis.BaseSchema]:
    root = Path(shutil.copytree(finished_world, tmp_path_factory.mktemp("fuzz") / "world"))
    store = open_store(f"sqlite:///{root / 'gate.db'}", migrate=False)
    app = create_app(World(root, store), TextBackend(), access=Access(TOKEN))
    # The test brings the token: a request that is wrong for its token alone would be right after all.
    config = schemathesis.Config.from_dict({"generation": {"with-security-parameters": False}})
    yield schemathesis.openapi.from_asgi("/openapi.json", app, config=config)
    store.close()


def test_every_route_is_fuzzed(api: schemathesis.BaseSchema) -> None:
    described = {(item.ok().path, item.ok().method.upper()) for item in api.get_all_operations()}
    assert described == set(ROUTES)


# The last two take no input that could be wrong.
@pytest.mark.parametrize(
    ("path", "method", "mode"),
    [
        *((*route, GenerationMode.POSITIVE) for route in ROUTES),
        *((*route, GenerationMode.NEGATIVE) for route in ROUTES[:-2]),
    ],
)
def test_every_response_is_as_described(
    api: schemathesis.BaseSchema, path: str, method: str, mode: GenerationMode
) -> None:
    operation = api[path][method]

    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: schemathesis.Case) -> None:
        case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"})

    send()
