import asyncio

import pytest
import sqlalchemy as sa

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.corrections.configuration import write_config
from persona_pipeline.corrections.interventions import Guidance, Interventions
from persona_pipeline.corrections.nudges import HEADING, Intervention
from persona_pipeline.world import CorrectionSettings, World
from tests.corrections.support import say
from tests.corrections.test_repetition import stock
from tests.support.clock import Clock, ended_at, held
from tests.support.worlds import write_yaml

ON = CorrectionSettings(anti_convergence_enabled=True, repetition_suppression_enabled=True)
SAME = "We should all go and see the new warehouse"


@pytest.fixture
def agreeing(world: World) -> World:
    """A channel that agrees, in which ann repeats herself."""
    write_config(world.store, "ann", ON)
    lines = [("bob", "general", "I agree"), ("ann", "general", f"Exactly! {SAME}")] * 5
    say(world, *lines)
    return world


def look(world: World, agent_id: str = "ann", channel: str | None = "general") -> Guidance:
    return asyncio.run(Interventions(world).before_turn(agent_id, channel=channel))


def test_both_stand_under_one_heading(agreeing: World) -> None:
    guidance = look(agreeing)
    assert [nudge.kind for nudge in guidance.nudges] == [Intervention.ANTI_CONVERGENCE, Intervention.REPETITION]
    assert guidance.nudges[0].share == 1.0
    assert guidance.block is not None
    assert guidance.block.count(HEADING) == 1
    assert "you, Ann, see" in guidance.block or "own voice" in guidance.block
    assert "We should all go and see the new warehouse" in guidance.block


def test_a_direct_message_is_no_reason_for_a_nudge_but_repetition_is(agreeing: World) -> None:
    assert [nudge.kind for nudge in look(agreeing, channel=None).nudges] == [Intervention.REPETITION]


def test_another_channel_is_another_matter(agreeing: World) -> None:
    assert [nudge.kind for nudge in look(agreeing, channel="sales").nudges] == [Intervention.REPETITION]


@pytest.mark.parametrize("agent_id", ["bob", "nobody"])
def test_who_has_nothing_on_gets_nothing(agreeing: World, agent_id: str) -> None:
    guidance = look(agreeing, agent_id)
    assert (guidance.block, guidance.nudges, guidance.failed) == (None, (), False)


def test_nothing_is_stored(agreeing: World) -> None:
    def contents() -> list[int]:
        with agreeing.store.connect() as connection:
            names = sa.inspect(connection).get_table_names(schema=None if agreeing.store.is_sqlite else "persona")
            prefix = "" if agreeing.store.is_sqlite else "persona."
            return [connection.exec_driver_sql(f"SELECT count(*) FROM {prefix}{n}").scalar_one() for n in sorted(names)]  # noqa: S608

    before = contents()
    assert look(agreeing) == look(agreeing)
    assert contents() == before


def test_a_catchphrase_of_the_fluency_file_is_exempt(world: World) -> None:
    write_config(world.store, "ann", CorrectionSettings(repetition_suppression_enabled=True, repetition_threshold=0.1))
    say(world, ("ann", "general", "boom goes the stapler"), ("ann", "general", "boom goes the stapler"))
    assert look(world).nudges
    phrase = {"phrase": "boom goes the stapler", "min_rate": 0.0, "max_rate": 0.5}
    write_yaml(
        world.root / "propositions" / "fluency" / "ann.yaml",
        {"dimension": "fluency", "catchphrases": [phrase], "propositions": []},
    )
    assert not look(world).nudges


def test_what_an_agent_often_did_long_ago_is_usual_for_it(world: World) -> None:
    """Of its newest two hundred messages the last five alone begin alike; of those before, each did."""
    write_config(world.store, "ann", CorrectionSettings(repetition_suppression_enabled=True))
    plain = [text.partition("! ")[2] for text in stock(195, 1)]
    lately = [("ann", "general", text) for text in [*plain, *stock(5, 3)]]
    say(world, *lately)
    assert [nudge.kind for nudge in look(world).nudges] == [Intervention.REPETITION]
    say(world, *[("ann", "general", text) for text in stock(250, 2)], *lately)
    assert not look(world).nudges


def test_a_world_brings_its_own_language(world: World, caplog: pytest.LogCaptureFixture) -> None:
    write_config(world.store, "ann", CorrectionSettings(anti_convergence_enabled=True))
    say(world, *[("bob", "general", "Да, это совершенно верно!"), ("bob", "general", "Exactly")] * 5)
    interventions = Interventions(world)
    for _ in range(2):
        guidance = interventions.before_turn_sync("ann", channel="general")
        assert (guidance.nudges, guidance.unread) == ((), "no lexicon for ru")
    # The log says so once a channel.
    assert [record.getMessage() for record in caplog.records] == [
        "anti-convergence does not watch channel 'general': no lexicon for ru"
    ]
    write_yaml(world.root / "lexicons" / "agreement.ru.yaml", {"language": "ru", "phrases": ["совершенно верно"]})
    assert look(world).nudges[0].share == 1.0


def test_a_slow_database_holds_no_turn_up(world: World, clock: Clock) -> None:
    write_config(world.store, "ann", ON)
    interventions = Interventions(world)

    async def run() -> Guidance:
        turn = interventions.before_turn("ann", channel="general")
        return await ended_at(clock, interventions.deadline, turn, waiting=lambda: store.waiting)

    with held(world.store) as store:
        guidance = asyncio.run(run())
        assert (guidance.block, guidance.failed) == (None, True)


def test_a_database_that_fails_five_times_is_left_in_peace(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        asked.append(1)
        raise OSError("no route to the database")

    asked: list[int] = []
    monkeypatch.setattr("persona_pipeline.corrections.interventions.read_config", fail)
    interventions = Interventions(world)
    assert [interventions.before_turn_sync("ann").failed for _ in range(8)] == [True] * 8
    assert len(asked) == 5


def test_a_broken_fluency_file_costs_the_guidance_and_nothing_else(agreeing: World) -> None:
    path = agreeing.root / "propositions" / "fluency" / "_default.yaml"
    path.write_text("catchphrases: 3\n", encoding="utf-8")
    assert look(agreeing).failed


def test_broken_nudges_are_an_error_at_the_start(world: World) -> None:
    write_yaml(world.root / "nudges" / "ann.yaml", {"anti_convergence": []})
    with pytest.raises(ConfigError, match=r"ann\.yaml"):
        Interventions(world)


def test_without_an_event_loop(agreeing: World) -> None:
    assert Interventions(agreeing).before_turn_sync("ann", channel="general").block
