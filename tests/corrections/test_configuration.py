import asyncio
import threading
from typing import cast

import pytest

from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.corrections.configuration import StoredSettings, read_config, reset_config, write_config
from persona_pipeline.world import CorrectionSettings, World
from tests.corrections.support import GATED, spoil_settings
from tests.support.clock import LONG, Clock, held
from tests.support.worlds import write_yaml


def set_in_persona_file(world: World, **corrections: object) -> None:
    write_yaml(
        world.root / "personas" / "bob.yaml",
        {"display_name": "Bob", "persona": "Bob loves machines.", "corrections": corrections},
    )
    world.sync()


def test_everything_is_off_unless_set(world: World) -> None:
    for agent_id in ("bob", "nobody"):
        settings = read_config(world.store, agent_id).settings
        assert settings == CorrectionSettings()
        assert not settings.action_gate_enabled
        assert not settings.anti_convergence_enabled
        assert not settings.repetition_suppression_enabled
    assert read_config(world.store, "bob").source == "persona"
    assert read_config(world.store, "nobody").source is None


def test_the_persona_file_sets_and_changes_them(world: World) -> None:
    set_in_persona_file(world, action_gate_enabled=True, convergence_threshold=0.4)
    config = read_config(world.store, "bob")
    assert (config.settings.action_gate_enabled, config.settings.convergence_threshold) == (True, 0.4)
    set_in_persona_file(world)
    assert read_config(world.store, "bob").settings == CorrectionSettings()


def test_what_is_set_here_outlasts_the_persona_file_until_reset(either_world: World) -> None:
    mine = CorrectionSettings(repetition_suppression_enabled=True, repetition_threshold=0.25)
    written = write_config(either_world.store, "bob", mine)
    assert (written.settings, written.source) == (mine, "api")
    set_in_persona_file(either_world, action_gate_enabled=True)
    assert read_config(either_world.store, "bob").settings == mine
    reset_config(either_world.store, "bob", GATED)
    set_in_persona_file(either_world, anti_convergence_enabled=True)
    assert read_config(either_world.store, "bob").settings == CorrectionSettings(anti_convergence_enabled=True)


def test_an_agent_the_store_does_not_know_cannot_be_set(either_world: World) -> None:
    with pytest.raises(ConfigError, match=r"personas/nobody\.yaml"):
        write_config(either_world.store, "nobody", GATED)


@pytest.mark.parametrize("value", [0.0, 0.1, 0.3, 0.6, 0.65, 1 / 3, 1.0])
def test_a_threshold_comes_back_as_it_was_set(world: World, value: float) -> None:
    write_config(world.store, "bob", CorrectionSettings(repetition_threshold=value))
    assert read_config(world.store, "bob").settings.repetition_threshold == pytest.approx(value, abs=1e-6)
    assert read_config(world.store, "bob").settings.repetition_threshold == round(value, 6)


def test_stored_settings_that_are_not_valid_are_named_and_can_be_reset(either_world: World) -> None:
    spoil_settings(either_world, "bob")
    with pytest.raises(ConfigError, match=r"'bob'.*action_gate_threshold 99\.0.*config reset bob"):
        read_config(either_world.store, "bob")
    assert reset_config(either_world.store, "bob", GATED).settings == GATED


def test_an_agent_with_settings_that_are_not_valid_is_no_outage_for_the_others(world: World) -> None:
    settings = StoredSettings(world.store)
    spoil_settings(world, "bob")
    assert [settings("bob") for _ in range(6)] == [CorrectionSettings()] * 6
    assert settings("ann") == GATED


def test_settings_that_cannot_be_read_are_the_last_known(world: World) -> None:
    settings = StoredSettings(world.store)
    assert settings("ann") == GATED
    settings._seconds = 0.1
    with held(world.store) as store:
        assert settings("ann") == GATED
        assert settings("bob") == CorrectionSettings()
        assert not store.released.is_set()


def test_settings_looked_up_on_an_event_loop_are_read_once_a_second(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock.take_over(monkeypatch)
    settings = StoredSettings(world.store)
    assert asyncio.run(settings.soon("ann")) == GATED
    write_config(world.store, "ann", CorrectionSettings())
    clock.forward(0.5)
    assert asyncio.run(settings.soon("ann")) == GATED
    clock.forward(2)
    assert asyncio.run(settings.soon("ann")) == CorrectionSettings()


def test_of_more_names_than_any_world_has_the_newest_are_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("persona_pipeline.corrections.configuration._MOST_AGENTS", 50)
    settings = StoredSettings(world.store)
    assert settings("ann") == GATED
    for number in range(49):
        settings(f"made-up-{number}")
    spoil_settings(world, "ann")
    assert settings("ann") == GATED, "the last known hold while there is room"
    for number in range(50):
        settings(f"made-up-{number}")
    assert asyncio.run(settings.soon("ann")) is None


def test_settings_that_were_never_known_are_none(world: World) -> None:
    settings = StoredSettings(world.store)
    spoil_settings(world, "ann")
    assert asyncio.run(settings.soon("ann")) is None


class OutOfOrder:
    """A store of which every read fails, or hangs until it is let go."""

    def __init__(self, hangs: bool) -> None:
        self.reads, self.hangs, self.let_go = 0, hangs, threading.Event()

    def row(self, _: object) -> None:
        self.reads += 1
        if not self.hangs:
            raise OSError("no route to the database")
        self.let_go.wait(LONG)


def test_a_database_that_fails_five_times_is_left_in_peace(caplog: pytest.LogCaptureFixture) -> None:
    store = OutOfOrder(hangs=False)
    settings = StoredSettings(cast("Store", store))
    assert [settings("ann") for _ in range(8)] == [CorrectionSettings()] * 8
    assert store.reads == 5
    told = "settings of 'ann' not read (OSError); the last known hold"
    assert [record.getMessage() for record in caplog.records].count(told) == 5


def test_what_nobody_waits_for_any_more_is_not_read_later() -> None:
    store = OutOfOrder(hangs=True)
    settings = StoredSettings(cast("Store", store), seconds=0.01)
    for _ in range(4):
        settings("ann")
    store.let_go.set()
    assert settings._pool.wait_idle(LONG)
    # Two threads held by a read each; the other two calls were given up before they began.
    assert store.reads <= 2
