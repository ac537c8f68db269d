"""Do numbers that need no judge go with what people said? Rank correlations with ratings, of a file or of people who chatted."""

import csv
import json
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.installing import HOME, Installed, wheel
from benchmarks.peers.repetition import compression, stability_of
from persona_pipeline.scoring.text.agreement import agreement_ratio
from persona_pipeline.scoring.text.repetition import find_repetition

# A correlation of fewer tells nothing.
FEWEST = 20


class RatingsError(ValueError):
    """A file of ratings that cannot be read: where, and what to do."""


@dataclass
class Rated:
    """What was said in one conversation, oldest first, what people gave it, and other numbers of the file."""

    texts: list[str] = field(default_factory=list)
    given: list[float] = field(default_factory=list)
    scores: dict[str, list[float]] = field(default_factory=dict)

    @property
    def rating(self) -> float:
        return sum(self.given) / len(self.given)


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation of a measure with the ratings, its 95 % interval (Bonett and Wright, 2000), and of how many."""

    measure: str
    rho: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return "cannot tell" if math.isnan(self.rho) else f"{self.rho:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def read_ratings(
    path: Path, text: str = "text", rating: str = "rating", conversation: str = "conversation"
) -> list[Rated]:
    """Return the rated conversations of a CSV, TSV or JSONL file.

    Args:
        text, rating: columns that must be there; conversation: rows that have the same one belong together, else each is its own.
            Every further column that is a number in all rows is a measure, too: a judge's score, or another tool's.

    Raises:
        RatingsError: a column is missing, or a rating is no number; with file and line.
    """
    found: dict[str, Rated] = {}
    rows = _rows(path)
    for number, row in rows:
        for name in (text, rating):
            if row.get(name) in (None, ""):
                option = "text" if name == text else "rating"
                raise RatingsError(f"{path}:{number}: no {name!r}; there is {', '.join(row)}. Name it with --{option}")
        rated = found.setdefault(str(row.get(conversation) or number), Rated())
        rated.texts.append(str(row[text]))
        try:
            rated.given.append(float(row[rating]))
        except (TypeError, ValueError):
            raise RatingsError(
                f"{path}:{number}: {rating} is {row[rating]!r}; it must be a number, higher is better"
            ) from None
        for name in row.keys() - {text, rating, conversation}:
            try:
                rated.scores.setdefault(name, []).append(float(row[name]))
            except (TypeError, ValueError):
                rated.scores.setdefault(name, []).append(math.nan)
    if len(found) < FEWEST:
        raise RatingsError(f"{path}: {len(found)} conversations with ratings; at least {FEWEST} are needed")
    return list(found.values())


def _rows(path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    if path.suffix == ".jsonl":
        found = []
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line) if line.strip() else None
            except json.JSONDecodeError as error:
                raise RatingsError(f"{path}:{number}: no JSON ({error.msg}); one object a line is read") from None
            if isinstance(row, dict):
                found.append((number, row))
        return found
    reader = csv.DictReader(
        path.open(encoding="utf-8-sig", newline=""), delimiter="\t" if path.suffix == ".tsv" else ","
    )
    return [(reader.line_num, row) for row in reader]


def chats(home: Path = HOME, most: int = 1500) -> list[Rated]:
    """Return conversations of people who chatted with a stranger, and how interesting they found it (1-10), evenly drawn."""
    with zipfile.ZipFile(wheel("chat", home)) as opened:
        talks = json.loads(opened.read("chitchat_dataset/dataset.json")).values()
    found = []
    for talk in talks:
        texts = [item["text"] for items in talk["messages"] for item in items if item["text"].strip()]
        if talk.get("ratings") and len(texts) >= 6:
            found.append(Rated(texts, [float(talk["ratings"]["interesting"])]))
    return [found[place * len(found) // most] for place in range(most)] if len(found) > most else found


MEASURES: Mapping[str, Callable[[Sequence[str]], float]] = {
    "persona-pipeline, share of repeated words": lambda texts: find_repetition(list(texts)).share,
    "persona-pipeline, share of mere agreement": lambda texts: agreement_ratio(list(texts)),
    "messages": lambda texts: float(len(texts)),
    "words a message": lambda texts: sum(len(text.split()) for text in texts) / len(texts),
    "compression (as in the package diversity)": lambda texts: compression(list(texts)),
}


def correlations(rated: Sequence[Rated], installed: Mapping[str, Installed]) -> list[Correlation]:
    """Return how each measure, and each number of the file itself, goes with the ratings."""
    ratings = [one.rating for one in rated]
    columns = {name: [measure(one.texts) for one in rated] for name, measure in MEASURES.items()}
    peer = installed.get("alignmenter")
    if peer is not None and peer.program is not None:
        columns["Alignmenter, stability"] = [
            -score for score in stability_of(peer.program, [one.texts for one in rated])
        ]
    for name in sorted({name for one in rated for name in one.scores}):
        values = [one.scores.get(name, [math.nan]) for one in rated]
        if not any(math.isnan(value) for own in values for value in own):
            columns[f"{name} (of the file)"] = [sum(own) / len(own) for own in values]
    return [correlation(name, values, ratings) for name, values in columns.items()]


def correlation(name: str, values: Sequence[float], ratings: Sequence[float]) -> Correlation:
    from scipy.stats import spearmanr

    count = len(values)
    if count < FEWEST or len(set(values)) < 2 or len(set(ratings)) < 2:
        return Correlation(name, math.nan, math.nan, math.nan, count)
    rho = float(np.asarray(spearmanr(values, ratings))[0])
    reach = 1.96 * math.sqrt((1 + rho * rho / 2) / (count - 3))
    middle = math.atanh(max(-0.999999, min(0.999999, rho)))
    return Correlation(name, rho, math.tanh(middle - reach), math.tanh(middle + reach), count)
