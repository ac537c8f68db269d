"""Streams of a character's messages in which it changes from a known message on, and streams in which it does not."""

import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import yaml

from benchmarks.peers.texts import PARTS, Talks, TextWorld

# Own messages before the change, changed ones after it, and messages of a stretch in which nothing changes.
BEFORE, AFTER, STRETCH = 50, 100, 500
DIMENSIONS = 32
KINDS = {
    "stock assistant": "answers like an assistant, on its own subjects",
    "corporate voice": "writes circulars of a company, on its own subjects",
    "another speaker": "another character of the same world writes for it",
    "flattened": "its own messages, cut after 12 words, without exclamation marks and its forty most typical words",
    "repeats itself": "seven of ten messages are one of five earlier ones with every sixth word changed",
}


@dataclass(frozen=True)
class Plan:
    """How much is drawn a character: stretches to set limits by, stretches to measure on, and changes of each kind."""

    calibration: int = 12
    unchanged: int = 3
    changed: int = 2


@dataclass
class Case:
    """One character: its texts, and streams as places in them.

    Attributes:
        history: what everybody may learn from; ``talks``: the conversation of each.
        reference: the half of it that ``vectors`` and ``near`` were not learnt from.
        others: what others of its world said, with who said it; ``vectors``: see ``vectorised``.
        streams: by name; ``calibration``, ``unchanged`` and each of ``KINDS``, which begin with ``BEFORE`` own messages.
    """

    world: str
    character: str
    texts: list[str] = field(default_factory=list)
    history: list[int] = field(default_factory=list)
    talks: list[int] = field(default_factory=list)
    reference: list[int] = field(default_factory=list)
    others: list[tuple[str, int, str]] = field(default_factory=list)
    vectors: list[list[float]] = field(default_factory=list)
    near: list[float] = field(default_factory=list)
    streams: dict[str, list[list[int]]] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)

    def place(self, text: str) -> int:
        """Return where a text stands among ``texts``, added where it is new."""
        if text not in self._places:
            self._places[text] = len(self.texts)
            self.texts.append(text)
        return self._places[text]

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_places"}


def parted(talks: Talks) -> tuple[Talks, Talks, Talks]:
    """Return half of the conversations to learn from, a quarter to set limits by, a quarter to measure on."""
    return (
        [talk for n, talk in enumerate(talks) if n % 2 == 0],
        [talk for n, talk in enumerate(talks) if n % 4 == 1],
        [talk for n, talk in enumerate(talks) if n % 4 == 3],
    )


def cases(worlds: Sequence[TextWorld], plan: Plan, seed: int) -> Iterator[Case]:
    """Yield a case for each character of each world, the same for one seed."""
    stock = yaml.safe_load((PARTS / "stock.yaml").read_text(encoding="utf-8"))
    for world in worlds:
        for name in world.characters:
            generator = random.Random(f"{seed} {world.name} {name}")
            yield _case(world, name, stock[world.language], plan, generator)


def _case(world: TextWorld, name: str, stock: dict[str, list[str]], plan: Plan, generator: random.Random) -> Case:
    case = Case(world.name, name)
    known, limits, measured = parted(world.characters[name])
    for number, talk in enumerate(known):
        case.history += [case.place(text) for text in talk]
        case.talks += [number] * len(talk)
    others = {other: parted(talks) for other, talks in world.characters.items() if other != name}
    for other, (said, _, _) in others.items():
        case.others += [(other, number, text) for number, talk in enumerate(said) for text in talk]
    own, names = own_words(known, [said for said, _, _ in others.values()]), sorted(others)
    slots = subjects(known)

    def drawn(talks: Talks, count: int) -> list[str]:
        # Whole rounds of all conversations. Each half of them is shuffled in itself, so that none comes again soon: a conversation
        # that is replayed within a window would be a true repetition.
        half = len(talks) // 2
        found: list[str] = []
        while len(found) < count:
            for part in (talks[:half], talks[half:]):
                found += [text for talk in generator.sample(part, len(part)) for text in talk]
        return found[:count]

    def stream(texts: list[str]) -> list[int]:
        return [case.place(text) for text in texts]

    def changed(kind: str, number: int) -> list[str]:
        if kind == "another speaker":
            return drawn(others[names[number % len(names)]][2], AFTER)
        if kind == "flattened":
            return [flattened(text, own) for text in drawn(measured, AFTER)]
        if kind == "repeats itself":
            return repeating(drawn(measured, AFTER), generator)
        lines = stock["assistant" if kind == "stock assistant" else "corporate"]
        return [filled(generator.choice(lines), slots, generator) for _ in range(AFTER)]

    case.streams["calibration"] = [stream(drawn(limits, STRETCH)) for _ in range(plan.calibration)]
    case.streams["unchanged"] = [stream(drawn(measured, STRETCH)) for _ in range(plan.unchanged)]
    for kind in KINDS:
        case.streams[kind] = [
            stream([*drawn(measured, BEFORE), *changed(kind, number)]) for number in range(plan.changed)
        ]
    halves = [[p for p, talk in zip(case.history, case.talks, strict=True) if talk % 2 == odd] for odd in (0, 1)]
    case.reference = halves[1]
    case.vectors, case.near = vectorised(case.texts, *halves)
    return case


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def own_words(known: Talks, others: Sequence[Talks], count: int = 40) -> set[str]:
    """Return the words that most tell a character from the others of its world, by the log-odds of how often they are said."""
    ours = Counter(word for talk in known for text in talk for word in _words(text))
    theirs = Counter(word for talks in others for talk in talks for text in talk for word in _words(text))
    all_ours, all_theirs = ours.total() + 1, theirs.total() + 1

    def weight(word: str) -> float:
        # Weighed by how often it is said, so that the words that are heard go, not one that was said once.
        return math.sqrt(ours[word]) * math.log((ours[word] + 0.5) / all_ours * all_theirs / (theirs[word] + 0.5))

    return set(sorted(ours, key=lambda word: (-weight(word), word))[:count])


def subjects(known: Talks, count: int = 60) -> list[str]:
    """Return long words that a character says often."""
    said = Counter(word for talk in known for text in talk for word in re.findall(r"\w+", text) if not word.isdigit())
    long_words = {word: n for word, n in said.items() if len(word) >= (3 if not word.isascii() else 6)}
    return sorted(long_words, key=lambda word: (-long_words[word], word))[:count]


def filled(line: str, slots: Sequence[str], generator: random.Random) -> str:
    return line.replace("{a}", generator.choice(slots)).replace("{b}", generator.choice(slots))


def flattened(text: str, own: set[str]) -> str:
    """Return a message without what is most a character's own, at most twelve words of it."""
    words = [word for word in re.sub(r"[!?;:*<>\"“”…—-]+", " ", text).split() if not own & set(_words(word))]
    flat = " ".join(words[:12]).strip(" ,.")
    return f"{flat[:1].upper()}{flat[1:]}." if flat else "Yes."


def repeating(texts: list[str], generator: random.Random) -> list[str]:
    """Return messages of which seven in ten are one of the first five long ones, one word in six another."""
    stuck = sorted(texts[:20], key=lambda text: -len(text.split()))[:5]
    words = [word for text in texts for word in text.split()]
    found = []
    for text in texts:
        if generator.random() < 0.7:
            text = " ".join(
                word if (n + 1) % 6 else generator.choice(words)
                for n, word in enumerate(generator.choice(stuck).split())
            )
        found.append(text)
    return found


def vectorised(texts: list[str], learnt: list[int], reference: list[int]) -> tuple[list[list[float]], list[float]]:
    """Return what peers that take numbers are given: 32 components of TF-IDF of characters, and how near each text is to its own.

    Learnt on one half of the history, since on what it was learnt from it would fit too well and everything new seem to drift; the
    other half is the reference. Character 2-4-grams within words tell voices better than words do. Nearness, the cosine with the
    mean, is in standard deviations of the reference.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    known = [texts[place] for place in learnt]
    tfidf = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True, min_df=2).fit(known)
    rows = tfidf.transform(texts)
    svd = TruncatedSVD(DIMENSIONS, random_state=1).fit(rows[learnt])
    near = rows @ np.asarray(rows[learnt].mean(axis=0)).ravel()
    own = near[reference]
    return np.round(svd.transform(rows), 5).tolist(), np.round((near - own.mean()) / (own.std() or 1.0), 4).tolist()
