"""A daemon that dies between recording what it saw and noting the runs loses no edit, and runs none twice."""

from collections.abc import Callable

import pytest

from tests.defs.suites_support import Suites
from tests.defs.support import Project
from tests.support.worlds import replace_in

OBSERVER = "source_changes"
EVERYTHING = 100


def edit(project: Project) -> None:
    replace_in(project.root / "personas/bob.yaml", "machines", "engines")


def revert(project: Project) -> None:
    replace_in(project.root / "personas/bob.yaml", "engines", "machines")


@pytest.mark.parametrize("recorded", [7, EVERYTHING])
def test_the_first_look_is_taken_again(small: Project, recorded: int) -> None:
    small.requests(OBSERVER, dies_after=recorded)
    assert small.agents_requested() == ["ann", "bob"]
    assert small.agents_requested() == []


def test_an_edit_runs_once_however_often_the_daemon_dies(settled: Project) -> None:
    assert settled.agents_requested() == []
    edit(settled)
    for _ in range(2):
        settled.requests(OBSERVER, dies_after=EVERYTHING)
        assert [item.agent_id for item in settled.asked_for(started=False)] == ["bob"]
    assert settled.agents_requested() == ["bob"]
    assert settled.agents_requested() == []


def test_only_the_part_that_was_edited_runs(settled: Project) -> None:
    replace_in(settled.root / "propositions/fluency/_default.yaml", "interesting", "boring")
    settled.requests(OBSERVER, dies_after=1)
    part = ("fluency_scores", "in_character", "verdicts")
    assert [(item.agent_id, item.assets) for item in settled.tick()] == [("ann", part), ("bob", part)]


def test_an_edit_undone_while_the_daemon_was_dead_leaves_nothing_out_of_date(settled: Project) -> None:
    edit(settled)
    settled.requests(OBSERVER, dies_after=EVERYTHING)
    revert(settled)
    assert settled.agents_requested() == [], "the verdict that there is rests on it"


def test_a_removed_agent_is_not_waited_for(settled: Project) -> None:
    edit(settled)
    settled.requests(OBSERVER, dies_after=EVERYTHING)
    (settled.root / "personas/bob.yaml").unlink()
    assert settled.agents_requested() == []
    assert settled.agents_requested() == []


@pytest.mark.parametrize("edited", [lambda text: text + "\n", lambda text: text])
def test_a_suite_runs_once_however_often_the_daemon_dies(world: Suites, edited: Callable[[str], str]) -> None:
    world.tick()
    path = world.root / "suites/desk.eval.yaml"
    kept = path.read_text(encoding="utf-8")
    replace_in(path, "hello", "hallo")
    for _ in range(2):
        world.requests("source_changes", dies_after=1)
    path.write_text(edited(path.read_text(encoding="utf-8")), encoding="utf-8")
    assert (world.tick(), world.tick()) == (["desk"], [])
    path.write_text(kept, encoding="utf-8")
    assert (world.tick(), world.tick()) == (["desk"], [])
