"""The trust boundary row by row: what was done, what came of it, what comes of it now, and the test that holds it."""

from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Row:
    """An attack. ``held_by``: tests that fail where it works again, as ``file::function`` below ``tests``."""

    attack: str
    before: str
    now: str
    held_by: tuple[str, ...]


HERE = "trust_boundary"
ATTACKS, FILES = f"{HERE}/test_attacks.py::test_", f"{HERE}/test_files.py::test_"
COLLECTOR, FAULTS = f"{HERE}/test_collector.py::test_", f"{HERE}/test_faults.py::test_"
GATEWAY = f"{HERE}/test_gateway.py::test_"
GREEN, CANARIES = "test_green_means_held.py::test_", "judging/test_canaries.py::test_"
# Rows 1 to 14 tell what they measured where they are tried.
TRIED = {1: "1_a_suite", 2: "2_a_persona", 3: "3_a_rec", 4: "4_a_m", 5: "5_an", 6: "6_five", 7: "7_a_req", 8: "8_half", 9: "9_stat",
         10: "10_a_judge", 12: "12_a_disk", 13: "13_switch", 14: "14_a_report"}  # fmt: skip
ROWS = {
    11: Row(
        "two live evaluations at once",
        "everything paid twice",
        "one lock a world and agent; it is free when its holder dies, whatever any clock says",
        ("store/test_leases.py::test_two_who_want", "store/test_leases.py::test_a_process_that_was_killed"),
    ),
    15: Row(
        "a pull request commits a store without the bad week",
        "exit 1 became 0, nothing named",
        "a fresh store decides, and a tracked .persona/ is refused",
        ("test_pull_requests.py::test_no_author", f"{GREEN}a_store_that_a_pull"),
    ),
    16: Row(
        "50 labels invented in a pull request",
        "falls doubted, exit 0",
        "labels excuse no drop: exit 1",
        (f"{GREEN}invented_labels",),
    ),
    17: Row(
        "one golden file edited: windows 2, sd between 1.5",
        "nobody's collapse is seen",
        "baselines are taken again from their recordings, and how much weeks differ has bounds",
        (f"{GREEN}a_drop_nobody", f"{GREEN}no_neighbour"),
    ),
    18: Row(
        "a judge change of -9, a baseline from 8.7 to 0.5",
        "falls vanish",
        "old and new numbers are named, and the base's decide",
        (f"{GREEN}a_lowered_baseline",),
    ),
    19: Row(
        "a suite names a file of the user's machine",
        "the file's text in results",
        "one gate for every file of every field of every type",
        (f"{FILES}every_kind", f"{FILES}no_field_of_an_assert", f"{FILES}no_field_of_a_target"),
    ),
    20: Row(
        "a targets file that is a link to a place outside",
        "all rights: secrets filled in",
        "the user's own only where no link of the repository leads to it",
        (f"{FILES}a_targets_file", f"{FILES}a_suite_that_is"),
    ),
    21: Row(
        "134 KiB that unpack to 15.7 million spans",
        "more than 10 GB, 300 s, SIGTERM ignored",
        "413 while it is counted, in a process that can be ended",
        (f"{COLLECTOR}21_what", f"{COLLECTOR}21_a_bomb", f"{COLLECTOR}21_a_reading"),
    ),
    22: Row(
        "all connections held by slow heads",
        "/health dead before the token",
        "heads that do not come make room for who asks",
        (f"{COLLECTOR}22_slow",),
    ),
    23: Row(
        "a target's answer from /proc/self/pagemap",
        "the sensor hashes for ever",
        "regular files of the repository, bounded",
        (f"{FILES}only_regular",),
    ),
    24: Row(
        "indirect injections",
        "43 of 73 flagged, no claim with a known answer",
        "two such claims beside flagged transcripts and a tenth of the others; doctor measures obedience",
        (f"{CANARIES}a_judge_that_obeys", f"{CANARIES}a_share_of_all", "judging/test_injection.py::test_most_attacks"),
    ),
    25: Row(
        "agents that talk about ratings and prompts",
        "32 of 107 flagged",
        "seldom flagged (docs/explanation/trust.md has the figure); a flag changes no score",
        ("judging/test_injection.py::test_talk_of",),
    ),
    26: Row(
        "a damaged store, a newer store, a mistake in the program",
        "traceback and exit 1, or exit 2",
        "exit 3, one line, what to do",
        (f"{FAULTS}26_a_damaged", f"{FAULTS}26_a_mistake", f"{HERE}/test_versions_and_clocks.py::test_a_store_of"),
    ),
    27: Row("a claim that is a formula", "written as it is", "defused", (f"{FAULTS}27_no", f"{FAULTS}27_report")),
    28: Row(
        "a judge that hangs, 300 at once",
        "6.14 s from arrival",
        "the deadline counts from when bytes came, and is earlier by what the loop is late",
        ("corrections/test_gate_load.py::test_28_a_loop", "corrections/test_gate_load.py::test_28_what"),
    ),
    29: Row(
        "control characters in commits, claims, labels",
        "ValueError; shown raw",
        "cleaned wherever text of others is printed",
        (f"{FAULTS}29_a_commits", f"{FAULTS}29_text", f"{FAULTS}29_labels", f"{FAULTS}29_a_page"),
    ),
    30: Row(
        "a person's messages removed",
        "the id stays in extras, runs, recordings, labels",
        "one command lists every place and cleans the store",
        (f"{HERE}/test_people.py::test_30_every",),
    ),
    31: Row(
        "--output /dev/null as root",
        "the device becomes a regular file",
        "devices, pipes and links are written through to",
        ("test_atomic_files.py::test_a_device", "test_atomic_files.py::test_a_link"),
    ),
    32: Row(
        "a streamed message is always rejected",
        "319 to 413 upstream requests and 477 to 618 judge calls in 30 s, without an end",
        "one check a message, and a budget: 3 rewrites, the client's tokens, dollars, seconds",
        (f"{GATEWAY}32_a_message_that_is_always", f"{GATEWAY}32_whatever", f"{GATEWAY}32_rewrites"),
    ),
    33: Row(
        "a request whose server runs tools",
        "the tools act three times",
        "asked again only of plain models without such tools, with keys of its own",
        (f"{GATEWAY}33_a_request", f"{GATEWAY}33_an_upstream", f"{GATEWAY}33_each"),
    ),
    34: Row(
        "a stranger's eval file names files of the machine",
        "an API key stood in the suite that was written",
        "one gate opens files; what leads out of the repository is named",
        ("suites/importing/test_gate.py::test_a_path_that_leads", "suites/importing/test_gate.py::test_only_the_gate"),
    ),
    35: Row(
        "one large event of a stream",
        "read again from its start at each chunk: 13.7 CPU s for 5 MB",
        "each byte is searched once; from 1 MiB on it passes and is counted",
        (f"{GATEWAY}35_events", f"{GATEWAY}35_the_work", f"{GATEWAY}35_what"),
    ),
    36: Row(
        "eleven ways past the gate",
        "no row and no metric",
        "one table of endpoints; an answer is checked or counted",
        (f"{GATEWAY}36_whatever", f"{GATEWAY}36_too_large"),
    ),
    37: Row(
        "a packed or an endless answer of the upstream",
        "5.9 GB of memory",
        "not unpacked, kept up to 8 MiB, counted (of the gateway alone)",
        (f"{GATEWAY}37_a_large", f"{GATEWAY}37_what"),
    ),
    38: Row(
        "templates of imports that grow",
        "more than 60 s, MemoryError",
        "one line with its place",
        ("suites/importing/test_hostile.py::test_a_template", "suites/importing/test_hostile.py::test_what_grows"),
    ),
    39: Row(
        "a body that does not go on",
        "1,000 connections open",
        "408 after 30 s without a byte (of the gateway alone)",
        (f"{GATEWAY}39_a_body",),
    ),
    42: Row(
        "Content-Length and Transfer-Encoding together",
        "500 with a traceback",
        "400, and the connection is closed",
        (f"{GATEWAY}42_a_request",),
    ),
    43: Row("a web page posts to the gateway", "answered", "403 by its Origin", (f"{GATEWAY}43_no",)),
}  # fmt: skip
ROWS |= {number: Row("told above", "", "", (f"{ATTACKS}{start}",)) for number, start in TRIED.items()}


def test_every_row_is_held_by_tests_that_exist() -> None:
    assert set(range(1, 32)) <= ROWS.keys()
    print()
    for number, row in sorted(ROWS.items()):
        print(
            f"{number:>2}  {row.attack}"
            + (f"\n      before: {row.before}\n      now:    {row.now}" if row.before else "")
        )
        print(f"      held by {', '.join(row.held_by)}")


@pytest.mark.parametrize("number", ROWS)
def test_what_holds_a_row_exists(number: int) -> None:
    for name in ROWS[number].held_by:
        path, _, start = name.partition("::")
        assert f"def {start}" in (TESTS / path).read_text(encoding="utf-8"), name
