"""What a thread does together shares a connection: reads are of one moment, writes are seen at once, and nobody else is held up."""

import threading

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, exclusive, is_held, upsert
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.judging.open import open_judge
from persona_pipeline.world import World
from persona_pipeline.world.messages.revision import raise_revisions


def note(store: Store, name: str) -> None:
    with store.begin() as connection:
        upsert(connection, tables.remembered, [{"name": name, "value": 1}])


def noted(store: Store) -> set[str]:
    with store.connect() as connection:
        return set(connection.execute(sa.select(tables.remembered.c.name)).scalars())


def elsewhere(store: Store, name: str) -> None:
    thread = threading.Thread(target=note, args=(store, name))
    thread.start()
    thread.join()


def test_what_is_read_is_of_one_moment_until_something_is_written(store: Store) -> None:
    with store.together():
        assert noted(store) == set()
        elsewhere(store, "theirs")
        assert noted(store) == set()
        note(store, "own")
        assert noted(store) == {"theirs", "own"}
    elsewhere(store, "later")
    assert noted(store) == {"theirs", "own", "later"}


def test_writing_inside_joins_and_goes_with_what_is_around_it(store: Store) -> None:
    with store.together():
        with pytest.raises(KeyError), store.begin():
            note(store, "inside")
            assert noted(store) == {"inside"}
            raise KeyError
        assert noted(store) == set()
        note(store, "after")
    assert noted(store) == {"after"}


def test_who_still_reads_is_not_cut_off_by_who_writes(store: Store) -> None:
    for name in "abc":
        note(store, name)
    with store.together(), store.connect() as connection:
        rows = connection.execute(sa.select(tables.remembered.c.name), execution_options={"yield_per": 1})
        seen = {next(rows)[0]}
        note(store, "d")
        assert seen | {row[0] for row in rows} == {"a", "b", "c"}
    assert noted(store) == {"a", "b", "c", "d"}


def test_a_lock_that_is_taken_together_is_seen_by_others(store: Store) -> None:
    with store.together(), exclusive(store, ["ann"]):
        held = list[bool]()
        thread = threading.Thread(target=lambda: held.append(is_held(store, "ann")))
        thread.start()
        thread.join()
        assert held == [True]


def test_an_evaluation_is_a_handful_of_transactions_however_many_files_it_reads(sample_root, store: Store) -> None:
    world, begun = World(sample_root, store), list[str]()
    text = (sample_root / "messages/general.jsonl").read_text(encoding="utf-8").splitlines()[:40]
    for number in range(6):
        lines = [line.replace('"id": "', f'"id": "{number}-') for line in text[number * 5 : number * 5 + 5]]
        (sample_root / f"messages/more{number}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    request = EvaluationRequest(agents=["michael"], dimensions=["adherence"])
    raise_revisions(store)
    event.listen(store.engine, "begin", lambda connection: begun.append("begin"))
    for most in (17, 5):
        run_evaluation(world, open_judge("recorded", world), request)
        assert len(begun) <= most
        begun.clear()
