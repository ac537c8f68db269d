"""Which names and settings a world has in a code location, while several worlds are under way in one process."""

from pathlib import Path

import dagster as dg
import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import Settings, get_settings
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import WorldResource, at_place


def place(model: str, root: Path | None = None) -> Place:
    return Place((model,), Settings(judge_model=model, root=root))


def test_two_worlds_in_one_process_have_each_their_own_settings(small_root: Path, sample_root: Path) -> None:
    worlds = [
        at_place(WorldResource, place(name, root))().open()
        for name, root in (("one", small_root), ("two", sample_root))
    ]
    assert [world.settings.judge_model for world in worlds] == ["one", "two"]
    assert [world.root for world in worlds] == [small_root, sample_root]
    assert get_settings().judge_model not in ("one", "two")
    for world in worlds:
        world.store.close()


def test_what_a_place_does_not_say_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONA_JUDGE_MODEL", "everybodys-model")
    monkeypatch.setenv("PERSONA_KEEP_DAYS", "7")
    assert Place().environment.judge_model == "everybodys-model" and Place().orchestration.keep_days == 7


@pytest.mark.parametrize("prefix", ["the office", "büro", "", "a-b"])
def test_a_prefix_is_made_of_what_keys_may_have(prefix: str) -> None:
    with pytest.raises(ConfigError, match="cannot begin a key"):
        Place((prefix,))


def test_a_prefix_may_have_parts() -> None:
    deep = Place(("team", "office"))
    assert deep.key(["suites", "desk"]) == dg.AssetKey(["team", "office", "suites", "desk"])
    assert (deep.name("nightly"), deep.path("agents")) == ("team__office__nightly", "team/office/agents")
