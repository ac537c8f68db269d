"""Kinds of targets that other packages bring."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.targets import registry
from persona_pipeline.suites.targets.given import MockTarget
from tests.suites.targets.test_providers import request, target


class Parrot(MockTarget):
    """Says what it was asked."""


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        name: EntryPoint(name, value, registry.TARGETS.group)
        for name, value in (("parrot", f"{__name__}:Parrot"), ("gone", "no_such_module:X"), ("odd", "json:dumps"))
    }
    monkeypatch.setattr("persona_pipeline.base.options.offered", {registry.TARGETS.group: points}.get)
    monkeypatch.setattr(registry.TARGETS, "loaded", {})


@pytest.mark.usefixtures("installed")
def test_an_entry_point_is_a_provider(tmp_path: Path) -> None:
    assert target(tmp_path, provider="parrot", response="ok").respond(request(tmp_path)).text == "ok"
    assert registry.TARGETS.names()[-3:] == ["gone", "odd", "parrot"]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "said"), [("gone", "cannot be loaded: No module named"), ("odd", "is no subclass of persona_pipeline")]
)
def test_one_that_cannot_be_used_says_so(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        target(tmp_path, provider=name)


def test_every_built_in_kind_is_there() -> None:
    for name in registry.TARGETS.names():
        assert registry.find_provider(name) is not None, name
