import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli.corrections import app
from persona_pipeline.corrections.configuration import read_config
from persona_pipeline.world import CorrectionSettings, World


@pytest.fixture
def root(small_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERSONA_ROOT", str(small_root))
    get_settings.cache_clear()
    return small_root


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_settings_are_shown_set_and_reset(root: Path) -> None:
    before = json.loads(run("config", "show", "ann", "--json").stdout)
    assert before == CorrectionSettings().model_dump() | {"source": "persona"}
    after = json.loads(run("config", "set", "ann", "--action-gate", "--action-gate-threshold", "6.5", "--json").stdout)
    assert (after["action_gate_enabled"], after["action_gate_threshold"], after["source"]) == (True, 6.5, "api")
    kept = json.loads(run("config", "set", "ann", "--repetition-suppression", "--json").stdout)
    assert (kept["action_gate_enabled"], kept["repetition_suppression_enabled"]) == (True, True)
    assert ["action_gate_enabled", "true"] in [
        line.split() for line in run("config", "show", "ann").stdout.splitlines()
    ]
    assert json.loads(run("config", "reset", "ann", "--json").stdout) == before
    world = World.open(root)
    assert read_config(world.store, "ann").source == "persona"
    world.store.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("config", "show", "nobody"), "personas/nobody.yaml"),
        (("config", "set", "nobody", "--action-gate"), "personas/nobody.yaml"),
        (("config", "set", "ann"), "no setting is given"),
        (("config", "set", "ann", "--action-gate-threshold", "11"), "--action-gate-threshold: "),
        (("serve", "--judge", "coin"), "unknown judge 'coin'"),
        (("serve", "--host", "0.0.0.0"), "set PERSONA_CORRECTIONS_TOKEN to a token"),
        (("serve", "--host", "service.example"), "set PERSONA_CORRECTIONS_TOKEN"),
        (("statistics", "--window", "soon"), "12h or 7d"),
        (("statistics", "--format", "xml"), "--format 'xml' is unknown; use table, json, markdown, html"),
    ],
)
def test_mistakes_are_named(root: Path, arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)


@pytest.mark.parametrize("option", [("--json",), ("--format", "json")])
def test_statistics_of_nothing(root: Path, option: tuple[str, ...]) -> None:
    assert json.loads(run("statistics", *option).stdout)["total"]["actions"] == 0
    assert run("statistics").stdout == "Nothing was checked.\n"
