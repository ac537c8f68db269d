"""One word for one thing: phrases that were given up stand nowhere where a user reads."""

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import Cli
from tests.support.worlds import replace_in

PROJECT = Path(__file__).parents[1]
# What was said once, and what is said now.
GIVEN_UP = {
    "nobody knows how far": "judge not checked",
    "do not trust its green": "low power: drops below 3.5 would be missed",
    "as far as these windows tell": "no slow trend",
    "dullest needs": "messages needed to detect 1.0",
    "not clean.": "what went wrong",
    "read those first": "mostly: X, Y",
    "95 % sure of": "95 % CI of the drop",
    "stands in the message": "quote found",
    "should be so that": "Missing: ...",
    "should not be so that": "Avoid: ...",
    "of the good": "of good ones",
    "asked the same of both": "not affected",
    "fires on itself": "low on healthy data",
    "falls silent": "becomes n/a",
    "catches nothing": "never fails",
    "points the judge gives more": "judge bias",
    "people among themselves": "inter-annotator agreement",
    "to halve these intervals": "labels needed to halve the CI",
    "judge and week": "judge noise and weekly variation",
    "corrected for:": "multiple-testing correction",
    "what this run could have seen": "detection limits",
    "who serves the judge": "judge providers",
    "what is safe against whom": "security",
    "can be believed (": "validated",
    "its drops only warn": "drops cannot be told",
    "is scored for": "has 0 of 7 judgments",
    "differ from what was recorded": "persona changed since it was judged",
    "babbles": "invalid output",
    "propositions were not judged": "claims were not judged",
    "no propositions for this agent": "no claims for this agent",
    "an edited proposition": "an edited claim",
    "or nothing fell;": "nothing dropped",
    "corrected_for": "multiple_testing_correction",
}
# Names of keys, which stand in files and commands; a person reads a label.
KEYS = ("ideas_quantity", "proposition_drop", "said_again", "unrecorded", "invalid_output")
DRIFT, HELD = "2026-06-22T00:00:00Z", "2026-06-15T00:00:00Z"


@functools.cache
def read_by_users() -> dict[Path, str]:
    return dict(_read_by_users())


def _read_by_users() -> Iterator[tuple[Path, str]]:
    for folder, endings in (("persona_pipeline", ("*.py", "*.j2", "*.js")), ("docs", ("*.md",))):
        for ending in endings:
            for path in sorted((PROJECT / folder).rglob(ending)):
                yield path, path.read_text(encoding="utf-8").lower()
    for name in ("README.md", "action.yml", "CONTRIBUTING.md"):
        yield PROJECT / name, (PROJECT / name).read_text(encoding="utf-8").lower()


@pytest.mark.parametrize("phrase", GIVEN_UP)
def test_what_was_said_once_is_said_nowhere(phrase: str) -> None:
    found = [path.relative_to(PROJECT).as_posix() for path, text in read_by_users().items() if phrase in text]
    assert not found, f"say {GIVEN_UP[phrase]!r} instead"


def week_that_nobody_judged(root: Path) -> None:
    """Say all of the second week again two weeks later, and some of it in a channel that is new."""
    for path in (root / "messages").glob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        said = [row for row in rows if "2026-06-08" <= row["created_at"] < "2026-06-13"]
        for number, row in enumerate(said):
            channel = "kitchen" if number % 2 and row.get("channel") == "general" else row.get("channel")
            day = str(int(row["created_at"][8:10]) + 14)
            moment = row["created_at"][:8] + day + row["created_at"][10:]
            moved = {"id": f"{row['id']}-again", "created_at": moment, **({"channel": channel} if channel else {})}
            rows.append({**row, **moved})
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def nothing(root: Path) -> None: ...


def edited_persona(root: Path) -> None:
    replace_in(root / "personas/pam.yaml", "Pam keeps", "Pam still keeps")


WORLDS = {
    "a drop": (nothing, ("--as-of", DRIFT)),
    "held": (nothing, ("--as-of", HELD)),
    "an edited persona": (edited_persona, ("--as-of", DRIFT)),
    "nobody judged": (week_that_nobody_judged, ()),
    "a small window": (nothing, ("--as-of", HELD, "--window", "12h")),
    "silence": (nothing, ("--as-of", "2025-01-01T00:00:00Z")),
}
COMMANDS = (
    ("evaluate", "--format", "markdown"),
    ("evaluate", "-v", "--format", "html"),
    ("evaluate", "--estimate"),
    ("calibrate",),
    ("watch", "--once"),
    ("doctor", "--no-calls", "--no-dagster"),
)


@pytest.mark.parametrize("name", WORLDS)
def test_no_output_says_what_was_given_up_or_the_name_of_a_key(name: str, sample_root: Path, cli: Cli) -> None:
    change, window = WORLDS[name]
    change(sample_root)
    for command in COMMANDS if name == "a drop" else COMMANDS[:1]:
        done = cli(*command, *(window if command[0] == "evaluate" else ()))
        assert done.returncode in (0, 1, 3), done.stderr
        shown = done.stdout + done.stderr
        found = [phrase for phrase in GIVEN_UP if phrase in shown.lower()]
        assert not found, (command, found)
        if command[0] != "evaluate" or "html" in command:
            continue
        # Paths and commands are written as they are cli, provenance as it is stored.
        prose = re.sub(r"`[^`]*`", "", shown.replace("\\", ""))
        named = [line for line in prose.splitlines() if any(re.search(rf"\b{key}\b", line) for key in KEYS)]
        assert not named, command


def lines_of(text: str, word: str) -> list[str]:
    return [line for line in text.splitlines() if word in line]


def test_a_week_that_nobody_judged_is_one_line_with_its_command(sample_root: Path, cli: Cli) -> None:
    week_that_nobody_judged(sample_root)
    done = cli("evaluate", "--format", "markdown")
    shown, folded = done.stdout.replace("\\", "").split("<details>", 1)
    names = "Dwight Schrute, Jim Halpert, Michael Scott, Pam Beesly"
    why = f"{names}: nothing is judged: not recorded (these messages were never judged)"
    assert lines_of(shown, "judged: ") == [f"- {why}"]
    assert len(lines_of(shown, "--record`")) == 1 and "--agents dwight,jim,michael,pam " in shown
    assert len(lines_of(folded, "never judged")) == 4 and "changed" not in done.stdout
    assert lines_of(done.stderr, "nothing is judged") == [why]


@pytest.mark.parametrize(
    ("world", "said"),
    [
        ("a drop", "Michael Scott: 4 of 5 dimensions dropped; worst: "),
        ("held", "All 4 agents are in character."),
        ("an edited persona", "Pam Beesly: 7 claims not recorded (persona changed since it was judged)"),
        ("silence", "Pam Beesly: no message in the window that ends 2025-01-01 00:00 UTC"),
    ],
)
def test_the_terminal_says_the_true_cause_in_a_line_an_agent(
    world: str, said: str, sample_root: Path, cli: Cli
) -> None:
    change, window = WORLDS[world]
    change(sample_root)
    lines = cli("evaluate", *window).stderr.splitlines()
    # A table of four, its legend, and what matters.
    assert any(said in line for line in lines) and len(lines) <= 16, lines
