"""One word for one thing: phrases that were given up stand nowhere where a user reads."""

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
EVERYBODY = "Dwight Schrute, Jim Halpert, Michael Scott, Pam Beesly"
DRIFT, HELD = "2026-06-22T00:00:00Z", "2026-06-15T00:00:00Z"


def read_by_users() -> Iterator[tuple[Path, str]]:
    for folder, endings in (("persona_pipeline", ("*.py", "*.j2", "*.js")), ("docs", ("*.md",))):
        for ending in endings:
            for path in sorted((PROJECT / folder).rglob(ending)):
                yield path, path.read_text(encoding="utf-8").lower()
    for name in ("README.md", "action.yml", "CONTRIBUTING.md"):
        yield PROJECT / name, (PROJECT / name).read_text(encoding="utf-8").lower()


def test_what_was_said_once_is_said_nowhere() -> None:
    read = list(read_by_users())
    found = {
        (path.relative_to(PROJECT).as_posix(), phrase, f"say {instead!r}")
        for phrase, instead in GIVEN_UP.items()
        for path, text in read
        if phrase in text
    }
    assert not found


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


# What is done to the world, which window is evaluated, and what the terminal says of it.
WORLDS = {
    "a drop": (nothing, ("--as-of", DRIFT), "Michael Scott: 4 of 5 dimensions dropped; worst: "),
    "held": (nothing, ("--as-of", HELD), "All 4 agents are in character."),
    "an edited persona": (
        edited_persona,
        ("--as-of", DRIFT),
        "Pam Beesly: 7 claims not recorded (persona changed since it was judged)",
    ),
    "nobody judged": (week_that_nobody_judged, (), f"{EVERYBODY}: nothing is judged: not recorded "),
    "a small window": (nothing, ("--as-of", HELD, "--window", "12h"), ""),
    "silence": (
        nothing,
        ("--as-of", "2025-01-01T00:00:00Z"),
        "Pam Beesly: no message in the window that ends 2025-01-01 00:00 UTC",
    ),
}
COMMANDS = (
    ("evaluate", "-v", "--format", "html"),
    ("evaluate", "--estimate"),
    ("calibrate",),
    ("watch", "--once"),
    ("doctor", "--no-calls", "--no-dagster"),
)


@pytest.mark.parametrize("name", WORLDS)
def test_no_output_says_what_was_given_up_or_the_name_of_a_key(name: str, sample_root: Path, cli: Cli) -> None:
    change, window, said = WORLDS[name]
    change(sample_root)
    page = cli("evaluate", "--format", "markdown", *window)
    # A table of four, its legend, and what matters: the true cause in a line an agent.
    lines = page.stderr.splitlines()
    assert any(said in line for line in lines) and len(lines) <= 16, lines
    others = [cli(*command, *(window if command[0] == "evaluate" else ())) for command in COMMANDS if name == "a drop"]
    for done in (page, *others):
        assert done.returncode in (0, 1, 3), done.stderr
        shown = done.stdout + done.stderr
        assert [phrase for phrase in GIVEN_UP if phrase in shown.lower()] == []
        if "<html" in done.stdout:
            continue
        # Paths and commands are written as they are typed, provenance as it is stored.
        prose = re.sub(r"`[^`]*`", "", shown.replace("\\", ""))
        assert [line for line in prose.splitlines() if any(re.search(rf"\b{key}\b", line) for key in KEYS)] == []
    if name == "nobody judged":
        one_line_with_its_command(page.stdout.replace("\\", ""), page.stderr)


def one_line_with_its_command(page: str, said: str) -> None:
    shown, folded = page.split("<details>", 1)
    why = f"{EVERYBODY}: nothing is judged: not recorded (these messages were never judged)"
    assert lines_of(shown, "judged: ") == [f"- {why}"]
    assert len(lines_of(shown, "--record`")) == 1 and "--agents dwight,jim,michael,pam " in shown
    assert len(lines_of(folded, "never judged")) == 4 and "changed" not in page
    assert lines_of(said, "nothing is judged") == [why]


def lines_of(text: str, word: str) -> list[str]:
    return [line for line in text.splitlines() if word in line]
