"""Schemathesis sends what the API description allows, and what it forbids, to every route."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import settings
from schemathesis.pytest import from_fixture

from persona_pipeline.corrections.service.app import create_app
from persona_pipeline.corrections.service.boundary import Access
from persona_pipeline.world import World
from tests.corrections.support import TextBackend

TOKEN = "fuzz-token"


@pytest.fixture
def api(sqlite_world: World) -> Iterator[schemathesis.BaseSchema]:
    app = create_app(sqlite_world, TextBackend(), access=Access(TOKEN))
    yield schemathesis.openapi.from_asgi("/openapi.json", app)


schema = from_fixture("api")


@schema.parametrize()
@settings(max_examples=40)
def test_every_response_is_as_described(case: schemathesis.Case) -> None:
    case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"})
