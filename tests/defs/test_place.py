"""Which settings are in force where, while several worlds are under way in one process."""

import threading
from collections.abc import Iterator

import dagster as dg
import pytest

from persona_pipeline.base.calls import run_async
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import Settings, get_settings
from persona_pipeline.defs.platform.place import Place


def place(model: str) -> Place:
    return Place((model,), Settings(judge_model=model))


def model() -> str:
    return get_settings().judge_model


def test_generators_of_two_worlds_that_take_turns_have_each_its_own_settings() -> None:
    def models() -> Iterator[str]:
        for _ in range(3):
            yield model()

    before = model()
    one, two = place("one").bound(models)(), place("two").bound(models)()
    seen = [(next(one), model(), next(two)) for _ in range(3)]
    assert seen == [("one", before, "two")] * 3
    assert list(one) == [] and model() == before


def test_threads_and_tasks_of_a_world_have_its_settings_and_others_do_not() -> None:
    inside, done = threading.Event(), threading.Event()
    seen: list[str] = []

    def elsewhere() -> None:
        inside.wait(30)
        seen.append(model())
        done.set()

    async def task() -> str:
        return model()

    async def from_a_running_loop() -> str:
        return run_async(task())

    def work() -> tuple[str, str]:
        inside.set()
        assert done.wait(30)
        return run_async(task()), run_async(from_a_running_loop())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    assert place("one").bound(work)() == ("one", "one")
    thread.join()
    assert seen == [get_settings().judge_model]


def test_an_abandoned_generator_is_closed_with_its_settings_in_force() -> None:
    closed: list[str] = []

    def made() -> Iterator[int]:
        try:
            yield 1
        finally:
            closed.append(model())

    generator = place("one").bound(made)()
    assert next(generator) == 1
    generator.close()
    assert closed == ["one"]


@pytest.mark.parametrize("prefix", ["the office", "büro", "", "a-b"])
def test_a_prefix_is_made_of_what_keys_may_have(prefix: str) -> None:
    with pytest.raises(ConfigError, match="cannot begin a key"):
        Place((prefix,))


def test_a_prefix_may_have_parts() -> None:
    deep = Place(("team", "office"))
    assert deep.key(["suites", "desk"]) == dg.AssetKey(["team", "office", "suites", "desk"])
    assert (deep.name("nightly"), deep.path("agents")) == ("team__office__nightly", "team/office/agents")
