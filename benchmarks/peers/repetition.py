"""Does a character repeat itself, and do two sound alike: the same windows for everybody, with and without what is planted."""

import json
import random
import re
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.peers.changes import parted
from benchmarks.peers.drift import Rate, rate
from benchmarks.peers.installing import PROJECT, Installed
from benchmarks.peers.texts import Talks, TextWorld
from persona_pipeline.scoring.style.likeness import FEWEST_NOW, find_likeness, nearness
from persona_pipeline.scoring.text.repetition import excessive_repetition, find_repetition
from persona_pipeline.world import CorrectionSettings

FIVE = 5
# Of the windows that limits are set by, so many may be beyond them.
ALLOWED = 0.02
PLANTED = {
    "opener": "three of five messages begin with the same four words of its own",
    "phrase": "three of five messages contain the same four words of its own",
    "near copy": "one of five is a copy of another with every sixth word changed",
}
ALIKE = {
    "another's voice": "a character writes only lines of another one",
    "half another's": "every second of its lines is another one's",
}
Window = list[str]
Scorer = Callable[[Window], float]


@dataclass(frozen=True)
class Told:
    """How often a measure fires: on what is intact, and on each kind that was planted."""

    measure: str
    intact: Rate
    planted: Mapping[str, Rate]


@dataclass(frozen=True)
class Character:
    """Windows of one character: to set limits by, intact ones, and planted ones by kind."""

    history: list[str]
    limits: list[Window]
    intact: list[Window]
    planted: Mapping[str, list[Window]]


def _windows(talks: Talks) -> list[Window]:
    return [talk[start : start + FIVE] for talk in talks for start in range(0, len(talk) - FIVE + 1, 2)]


def characters(worlds: Sequence[TextWorld], count: int, seed: int) -> list[Character]:
    """Return windows of every character, at most ``count`` intact ones and as many of each kind."""
    found = []
    for world in worlds:
        for name, talks in world.characters.items():
            generator = random.Random(f"{seed} repetition {world.name} {name}")
            known, limits, measured = parted(talks)
            history = [text for talk in known for text in talk]
            intact = _windows(measured)
            intact = generator.sample(intact, min(count, len(intact)))
            planted = {kind: [plant(window, kind, history, generator) for window in intact] for kind in PLANTED}
            found.append(Character(history, _windows(limits), intact, planted))
    return found


def plant(window: Window, kind: str, history: Sequence[str], generator: random.Random) -> Window:
    """Return a window that repeats itself in a way."""
    if kind == "near copy":
        # The longest is copied, so that there is something to tell.
        first = max(range(FIVE), key=lambda place: len(window[place].split()))
        second = generator.choice([place for place in range(FIVE) if place != first])
        others = [word for text in history[:50] for word in text.split()]
        words = window[first].split()
        copy = " ".join(word if (n + 1) % 6 else generator.choice(others) for n, word in enumerate(words))
        return [copy if place == second else text for place, text in enumerate(window)]
    words = generator.choice([text for text in history if len(text.split()) >= 8]).split()[1:5]
    phrase = re.sub(r"[^\w\s'’]", "", " ".join(words))
    places, made = set(generator.sample(range(FIVE), 3)), []
    for place, text in enumerate(window):
        own = text.split()
        at = 0 if kind == "opener" else max(1, len(own) // 2)
        made.append(" ".join([*own[:at], phrase, *own[at:]]) if place in places else text)
    return made


def compression(window: Window) -> float:
    """Bytes over bytes compressed, of what is said together over what is said apart."""
    apart = sum(len(zlib.compress(text.encode())) for text in window)
    return apart / len(zlib.compress("\n".join(window).encode()))


def longest_match(window: Window) -> float:
    """The highest similarity of two messages by the standard library's difflib (0-1)."""
    return max(SequenceMatcher(None, a, b, autojunk=False).ratio() for a, b in combinations(window, 2))


def cosine(window: Window) -> float:
    """The highest cosine of two messages, TF-IDF of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    rows = TfidfVectorizer(token_pattern=r"\w+", sublinear_tf=True, use_idf=False).fit_transform(window)
    alike = np.asarray((rows @ rows.transpose()).todense())
    return float(alike[np.triu_indices(len(window), 1)].max())


MEASURES: Mapping[str, Scorer] = {
    "persona-pipeline, its share of repeated words": lambda window: find_repetition(window).share,
    "compression (as in the package diversity)": compression,
    "difflib": longest_match,
    "TF-IDF cosine": cosine,
}


def repetition(worlds: Sequence[TextWorld], installed: Mapping[str, Installed], count: int, seed: int) -> list[Told]:
    """Return how often each measure tells what repeats itself; the first by its documented limit, the others by one set alike."""
    known = characters(worlds, count, seed)
    usual = CorrectionSettings().repetition_threshold

    def fires(character: Character, windows: Sequence[Window]) -> list[bool]:
        return [excessive_repetition(item, usual, history=character.history) is not None for item in windows]

    found = [
        Told(
            "persona-pipeline",
            rate([fires(one, one.intact) for one in known]),
            {kind: rate([fires(one, one.planted[kind]) for one in known]) for kind in PLANTED},
        )
    ]
    found += [
        _by_score(name, known, lambda windows, score=score: list(map(score, windows)))
        for name, score in MEASURES.items()
    ]
    peer = installed.get("alignmenter")
    if peer is not None and peer.program is not None:
        program = peer.program
        found.append(_by_score("Alignmenter, stability", known, lambda windows: stability_of(program, windows)))
    return found


def _by_score(name: str, known: Sequence[Character], scores: Callable[[Sequence[Window]], list[float]]) -> Told:
    everything = [
        window for one in known for part in (one.limits, one.intact, *one.planted.values()) for window in part
    ]
    told = iter(scores(everything))
    intact, planted = list[list[bool]](), {kind: list[list[bool]]() for kind in PLANTED}
    for one in known:
        highest = sorted((next(told) for _ in one.limits), reverse=True)
        limit = highest[int(ALLOWED * len(highest))]
        intact.append([next(told) > limit for _ in one.intact])
        for kind, windows in one.planted.items():
            planted[kind].append([next(told) > limit for _ in windows])
    return Told(name, rate(intact), {kind: rate(groups) for kind, groups in planted.items()})


def stability_of(program: Path, windows: Sequence[Window]) -> list[float]:
    """Return how alike Alignmenter finds the messages of each window."""
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder) / "windows.json", Path(folder) / "scores.json"
        given.write_text(json.dumps(windows), encoding="utf-8")
        script = str(Path(__file__).with_name("detectors.py"))
        subprocess.run(
            [str(program), "-W", "ignore", script, "stability", str(given), str(out)],
            check=True, capture_output=True, cwd=PROJECT, env={"PATH": "/usr/bin:/bin", "HOME": folder},
        )  # fmt: skip
        return json.loads(out.read_text(encoding="utf-8"))


def alike(worlds: Sequence[TextWorld], draws: int, seed: int) -> list[Told]:
    """Return how often each measure tells that one of a cast has come to sound like another; ours by its documented limit."""
    names = ("persona-pipeline", "cosine of both texts", "classifier of the author")
    fired: dict[str, dict[str, list[list[bool]]]] = {name: {kind: [] for kind in ("intact", *ALIKE)} for name in names}
    for world in worlds:
        cast = sorted(world.characters)
        generator = random.Random(f"{seed} alike {world.name}")
        history, rest = dict[str, list[str]](), dict[str, list[str]]()
        for name, talks in world.characters.items():
            known, limits, measured = parted(talks)
            history[name] = [text for talk in known for text in talk]
            rest[name] = [text for talk in (*limits, *measured) for text in talk]
        usual = _usual(history, generator)
        groups: dict[str, dict[str, list[bool]]] = {name: {kind: [] for kind in ("intact", *ALIKE)} for name in names}
        for _ in range(draws):
            copyist, model = generator.sample(cast, 2)
            drawn = {name: generator.sample(lines, min(len(lines), 2 * FEWEST_NOW)) for name, lines in rest.items()}
            window = {name: lines[:FEWEST_NOW] for name, lines in drawn.items()}
            more = drawn[model][FEWEST_NOW:]
            mixed = [b if n % 2 else a for n, (a, b) in enumerate(zip(window[copyist], more, strict=False))]
            made = {
                "intact": window,
                "another's voice": {**window, copyist: more},
                "half another's": {**window, copyist: mixed},
            }
            for kind, now in made.items():
                near = find_likeness(nearness(now, history, size=FEWEST_NOW), now, history)
                groups[names[0]][kind].append(bool(near))
                for name, (score, limits_of) in zip(names[1:], usual, strict=True):
                    # Every pair is looked at, as ours does.
                    groups[name][kind].append(
                        any(score(now[a], now[b]) > limits_of[a, b] for a, b in combinations(cast, 2))
                    )
        for name in names:
            for kind in ("intact", *ALIKE):
                fired[name][kind].append(groups[name][kind])
    return [Told(name, rate(by["intact"]), {kind: rate(by[kind]) for kind in ALIKE}) for name, by in fired.items()]


Pair = tuple[str, str]


def _usual(
    history: Mapping[str, Sequence[str]], generator: random.Random
) -> list[tuple[Callable[[Sequence[str], Sequence[str]], float], dict[Pair, float]]]:
    """Return two measures of how alike two windows are, each with the highest that each pair had in 50 draws of its history."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import RidgeClassifier

    tfidf = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True, min_df=2)
    cast = sorted(history)
    # On what a classifier was learnt from it tells voices better than on anything new: limits are of the other half.
    rows = tfidf.fit_transform([text for name in cast for text in history[name][::2]])
    who = np.array([name for name in cast for _ in history[name][::2]])
    classifier = RidgeClassifier(alpha=1.0, class_weight="balanced").fit(rows, who)

    def together(ours: Sequence[str], theirs: Sequence[str]) -> float:
        a, b = (np.asarray(tfidf.transform(lines).mean(axis=0)).ravel() for lines in (ours, theirs))
        return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b) or 1.0))

    def confused(ours: Sequence[str], theirs: Sequence[str]) -> float:
        a, b = (classifier.decision_function(tfidf.transform(lines)).mean(axis=0) for lines in (ours, theirs))
        return -float(np.linalg.norm(a - b))

    def drawn(a: str, b: str) -> tuple[list[str], list[str]]:
        return generator.sample(list(history[a][1::2]), FEWEST_NOW), generator.sample(
            list(history[b][1::2]), FEWEST_NOW
        )

    return [
        (score, {(a, b): max(score(*drawn(a, b)) for _ in range(50)) for a, b in combinations(cast, 2)})
        for score in (together, confused)
    ]
