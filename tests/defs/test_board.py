"""The board tells the truth of backfills, as GraphQL and, where there is a browser, its pages say."""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import dagster as dg
import pytest
from dagster._core.storage.schedules.sqlite import SqliteScheduleStorage

from persona_pipeline.base.settings import get_settings
from persona_pipeline.defs.platform.resources import AGENTS
from persona_pipeline.defs.platform.run_tags import VERDICT
from tests.defs.board import Board, open_board
from tests.defs.support import Project
from tests.support.browser import chromium
from tests.support.worlds import copy_sample

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

EVERYBODY = ["dwight", "jim", "michael", "pam"]
FOLDER = "PERSONA_TEST_SCREENSHOTS"
pytestmark = pytest.mark.slow


class Told(NamedTuple):
    """What was said after one step: of the backfill or run, and of the assets; the text of each page."""

    launched: dict[str, Any]
    assets: dict[str, Any]
    pages: dict[str, str]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Told]]:
    """What one webserver says after a collapsed and a healthy backfill, then runs of single agents."""
    root = copy_sample(tmp_path_factory.mktemp("board") / "world")
    golden = root / "baselines/michael.json"
    collapsed = golden.read_text(encoding="utf-8")
    baseline = json.loads(collapsed)
    baseline["dimensions"] = dict.fromkeys(baseline["dimensions"], 0.2)
    baseline["propositionScores"] = {}
    # A person has taken the drift for the new manner: only then does it count as being in character.
    del baseline["messages"]
    baseline["accepted"] = {"reason": "the new manner", "day": "2026-06-22", "by": ["adherence"]}
    said: dict[str, Told] = {}
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        # As somebody has it who has no other settings.
        for name in [name for name in os.environ if name.startswith("PERSONA_") and name != FOLDER]:
            patch.delenv(name)
        patch.setenv("PERSONA_ROOT", str(root))
        get_settings.cache_clear()
        instance = stack.enter_context(dg.DagsterInstance.ephemeral())
        instance.add_dynamic_partitions(AGENTS, EVERYBODY)
        instance._schedule_storage = SqliteScheduleStorage.from_local(str(tmp_path_factory.mktemp("schedules")), None)
        board = stack.enter_context(open_board(Project(root, instance)))
        # One window for all: Dagster's scripts are fetched and compiled once.
        window = None if shutil.which("chromium") is None else stack.enter_context(chromium()).new_context()

        def tell(name: str, launched: dict[str, Any]) -> None:
            said[name] = Told(launched, board.assets(), {})

        tell("collapsed", board.backfill(EVERYBODY))
        pages(window, board, said, "collapsed")
        golden.write_text(json.dumps(baseline), encoding="utf-8")
        tell("healthy", board.backfill(EVERYBODY))
        pages(window, board, said, "healthy")
        golden.write_text(collapsed, encoding="utf-8")
        tell("michael alone", board.evaluate("michael"))
        tell("pam alone", board.evaluate("pam"))
        # Neither a baseline nor verdicts on its messages: nothing says whether it is in character.
        golden.unlink()
        (root / "recordings/messages/michael.jsonl").unlink()
        tell("cannot be told", board.evaluate("michael"))
    yield said


def pages(window: "BrowserContext | None", board: Board, said: dict[str, Told], name: str) -> None:
    """Read Runs, Catalog, Checks and Backfills as they are now, where there is a browser."""
    if window is None:
        return
    newest = board.backfills[-1]
    # Address, and what stands there once the page is complete.
    shown = {
        "runs": ("/runs", rf"{newest}\s[\s\S]*?(Failure|Success)"),
        "catalog": ("/assets?asset-selection=group%3Aevaluation", r"in_character\s[^§]*?\d partitions"),
        "checks": (
            "/assets/verdicts?view=checks",
            r"all_in_character\s+(Failed|Succeeded)[\s\S]*Latest execution\s+\d in character",
        ),
        "backfill": (f"/runs/b/{newest}", r"in_character\s[\s\S]*completed"),
    }
    page = window.new_page()
    page.set_viewport_size({"width": 1600, "height": 1000})
    # What an earlier look left in the window is not shown for what is so now.
    kept = {"origin": board.site, "storageTypes": "cookies,indexeddb,local_storage,service_workers"}
    window.new_cdp_session(page).send("Storage.clearDataForOrigin", kept)
    for number, (where, (address, complete)) in enumerate(shown.items()):
        page.goto(f"{board.site}{address}")
        page.wait_for_function(
            "complete => new RegExp(complete).test(document.body.innerText)", arg=complete, timeout=60_000, polling=200
        )
        said[name].pages[where] = page.inner_text("body")
        if FOLDER in os.environ:
            page.wait_for_timeout(500)
            page.screenshot(path=Path(os.environ[FOLDER]) / f"{len(said)}-{name}-{number}-{where}.png")
    page.close()


def checks(told: Told) -> dict[str, str]:
    found = told.assets["verdicts"]["assetChecksOrError"]["checks"]
    return {item["name"]: item["executionForLatestMaterialization"]["status"] for item in found}


def failed(told: Told) -> dict[str, int]:
    """Return how many partitions of each asset are red in the catalog."""
    counts = {name: asset["partitionStats"]["numFailed"] for name, asset in told.assets.items()}
    return {name: count for name, count in counts.items() if count}


OUT = "out of character since 2026-06-15 08:38 UTC (message general-073): 22 of 22 messages, before 0 of 21"
DRIFTED = f"drifted: michael; Michael Scott has been {OUT}"


def verdicts(run: dict[str, Any]) -> list[str]:
    return [tag["value"] for tag in run["tags"] if tag["key"] == VERDICT]


def test_a_backfill_with_a_collapsed_agent_is_red_where_people_look(told: dict[str, Told]) -> None:
    said = told["collapsed"]
    assert said.launched["status"] == "COMPLETED_FAILED"
    [run] = said.launched["runs"]
    assert (run["status"], verdicts(run)) == ("FAILURE", [DRIFTED])
    assert failed(said) == {"in_character": 1}
    # Of a check by agent Dagster shows here whichever it planned last; the check over all agents is what can be relied on.
    assert checks(said)["all_in_character"] == "FAILED"


def test_a_backfill_of_agents_in_character_is_green(told: dict[str, Told]) -> None:
    said = told["healthy"]
    assert said.launched["status"] == "COMPLETED_SUCCESS"
    assert [(run["status"], verdicts(run)) for run in said.launched["runs"]] == [("SUCCESS", ["accepted: michael"])]
    assert failed(said) == {}
    assert set(checks(said).values()) == {"SUCCEEDED"}
    # A sensor sees the edited baseline whenever it looks: before a comparison with it, or after.
    rest = [asset for key, asset in said.assets.items() if key != "verdicts"]
    assert {status for asset in rest for status in asset["staleStatusByPartition"]} == {"FRESH"}


def test_an_agent_in_character_is_green_by_itself_and_hides_no_other(told: dict[str, Told]) -> None:
    alone, after = told["michael alone"], told["pam alone"]
    assert (alone.launched["status"], verdicts(alone.launched)) == ("FAILURE", [DRIFTED])
    assert (after.launched["status"], verdicts(after.launched)) == ("SUCCESS", ["in character"])
    assert checks(after)["no_regression"] == "SUCCEEDED", "of a check by agent Dagster shows who was asked last"
    assert checks(after)["all_in_character"] == "FAILED"
    assert failed(alone) == failed(after) == {"in_character": 1}


def test_an_agent_that_cannot_be_told_is_not_green(told: dict[str, Told]) -> None:
    said = told["cannot be told"]
    assert (said.launched["status"], verdicts(said.launched)) == ("FAILURE", ["cannot be told: michael"])
    assert checks(said)["full_coverage"] == "FAILED" and checks(said)["all_in_character"] == "FAILED"
    assert failed(said) == {"in_character": 1}


@pytest.mark.browser
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on this machine")
@pytest.mark.parametrize("name", ["collapsed", "healthy"])
def test_the_pages_say_so(told: dict[str, Told], name: str) -> None:
    red, shown = name == "collapsed", told[name].pages
    newest = re.search(r"\nBackfill\n[\s\S]*?(Failure|Success)", shown["runs"])
    assert newest is not None and newest[1] == ("Failure" if red else "Success")
    counts = re.search(r"in_character\s[\s\S]*?evaluation\n([\s\S]*?)4 partitions", shown["catalog"])
    assert counts is not None and counts[1].split() == (["3", "0", "1", "0"] if red else ["All", "0", "0", "0"])
    answers = dict(re.findall(r"\n(\w+)\n(Failed|Succeeded)", shown["checks"]))
    assert answers.pop("all_in_character") == ("Failed" if red else "Succeeded")
    assert red or set(answers.values()) == {"Succeeded"}
    assert ("drifted: michael" in shown["checks"]) is red
    status = re.search(r"Status\n(\w+)", shown["backfill"])
    assert status is not None and status[1] == ("Failed" if red else "Succeeded")
    by_asset = dict(re.findall(r"(\w+)\n100% completed\n([\d\s]+)", shown["backfill"]))
    assert by_asset["verdicts"].split() == ["4", "0", "4", "0"]
    assert by_asset["in_character"].split() == (["4", "0", "3", "1"] if red else ["4", "0", "4", "0"])
