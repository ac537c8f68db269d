"""What the signals that need no judge see in real dialogue, and how often they see what is not there.

    python benchmarks/signals.py [agreement] [repetition] [again] [convergence] [clones] [fleet] [fluency] [alarm]

Without arguments everything runs, in about half an hour. The dialogue is public, downloaded at run time, split by episode and
masked (benchmarks/dialogue.py); agreeing and normal lines are those of the tests. Shares have 95 % Wilson intervals. With two
cores shared, set OPENBLAS_NUM_THREADS=1.
"""

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from statistics import fmean

import numpy as np
import yaml

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

import dialogue

from persona_pipeline.scoring.convergence import nearness_score
from persona_pipeline.scoring.style.likeness import FEWEST_NOW, Likeness, find_clones, find_likeness, nearness
from persona_pipeline.scoring.text.agreement import agreement_ratio, is_agreement
from persona_pipeline.scoring.text.repetition import Level, find_repetition, ngram_part
from persona_pipeline.scoring.text.said_again import find_said_again, said_again_statistics
from persona_pipeline.world.models import Message

EVERYDAY = PROJECT / "persona_pipeline" / "scoring" / "style" / "data"
LINES = PROJECT / "tests" / "scoring" / "text" / "agreement_lines"
Voices = dict[str, list[str]]


def share(hits: int, total: int) -> str:
    """Return a share in per cent with its Wilson interval."""
    rate, z = hits / total, 1.96
    middle = (rate + z * z / (2 * total)) / (1 + z * z / total)
    reach = z * sqrt(rate * (1 - rate) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return f"{rate:6.1%} [{max(0.0, middle - reach):.1%}, {min(1.0, middle + reach):.1%}] of {total:,}"


def show(what: str, found: str, aim: str = "") -> None:
    print(f"  {what:<58} {found:<38} {aim and 'aim ' + aim}", flush=True)


def halves() -> tuple[set[int], set[int]]:
    """Return the episodes learnt from and those measured on: every other one."""
    episodes = sorted({line.episode for line in dialogue.lines()})
    return set(episodes[::2]), set(episodes[1::2])


def said(episodes: set[int]) -> Voices:
    return {
        name: [line.text for line in dialogue.turns(name) if line.episode in episodes and line.text.strip()]
        for name in dialogue.speakers()
    }


# ---- agreement


def agreement() -> None:
    print("\nAgreement")
    sets = [
        ("first set, before the lexicon", ""),
        ("second set, lexicon since widened", "_second"),
        ("third set", "_third"),
    ]
    for name, ending in sets:
        agreeing, normal = (read_lines(f"{kind}{ending}.txt") for kind in ("agreeing", "normal"))
        show(f"recall, {name}", share(sum(map(is_agreement, agreeing)), len(agreeing)), ">= 80 %")
        show(f"false positives, {name}", share(sum(map(is_agreement, normal)), len(normal)), "<= 15 %")
    unseen = [line for index, line in enumerate(read_lines("agreeing_third.txt")) if index % 2]
    show(
        "recall, the half of the third set never looked at",
        share(sum(map(is_agreement, unseen)), len(unseen)),
        ">= 80 %",
    )
    generator, lines = random.Random(1), read_lines("agreeing.txt")
    windows = [generator.sample(lines, 10) for _ in range(2000)]
    show(
        "windows of ten agreeing lines above .6", share(sum(agreement_ratio(w) > 0.6 for w in windows), 2000), ">= 95 %"
    )
    hits = total = 0
    for _, turns in by_episode():
        agrees = [is_agreement(line.text) for line in turns]
        total += max(0, len(agrees) - 9)
        hits += sum(sum(agrees[start : start + 10]) > 6 for start in range(len(agrees) - 9))
    show("intact windows of ten turns above .6", share(hits, total), "<= .5 %")


def read_lines(name: str | Path) -> list[str]:
    return [line for line in (LINES / name).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def by_episode() -> Iterator[tuple[int, list[dialogue.Line]]]:
    found: dict[int, list[dialogue.Line]] = {}
    for line in dialogue.lines():
        found.setdefault(line.episode, []).append(line)
    yield from found.items()


# ---- repetition

OPENERS = ("You know what,", "So let me tell you,", "Here is the thing:", "I have to say")
PHRASES = ("at the end of the day", "when push comes to shove", "let me be very clear", "as I said before")


def repetition() -> None:
    print("\nRepetition: share above .3, an opener or a phrase of four words in three of five, a near copy")
    windows = []
    for name in dialogue.speakers():
        episodes: dict[int, list[str]] = {}
        for line in dialogue.turns(name):
            episodes.setdefault(line.episode, []).append(line.text)
        windows += [own[start : start + 5] for own in episodes.values() for start in range(len(own) - 4)]
    generator = random.Random(1)
    chosen = generator.sample(windows, 3000)
    long_ones = [window for window in windows if fmean(len(text.split()) for text in window) >= 10]
    kinds: list[tuple[str, Sequence[list[str]], str]] = [
        ("intact", windows, "<= 1.5 %"),
        ("an opener in three of five", [with_opener(window, generator) for window in chosen], ">= 95 %"),
        ("a phrase in three of five", [with_phrase(window, generator) for window in chosen], ">= 90 %"),
        ("a template in all five", [template(window, generator) for window in chosen], ">= 98 %"),
        ("an exact copy of one", [copied(window, generator, 0) for window in chosen], ""),
        ("a copy with every sixth word changed", [copied(window, generator, 6) for window in chosen], ""),
        (
            "the same, ten words a message and more",
            [copied(w, generator, 6) for w in generator.sample(long_ones, 3000)],
            "",
        ),
    ]
    for name, made, aim in kinds:
        found = [find_repetition(window) for window in made]
        show(name, share(sum(item.level.exceeds(0.3, Level()) for item in found), len(made)), aim)
        show("    by the share alone", share(sum(item.share > 0.3 for item in found), len(made)))


def with_opener(window: list[str], generator: random.Random) -> list[str]:
    opener, places = generator.choice(OPENERS), set(generator.sample(range(5), 3))
    return [f"{opener} {text}" if place in places else text for place, text in enumerate(window)]


def with_phrase(window: list[str], generator: random.Random) -> list[str]:
    phrase, places, made = generator.choice(PHRASES), set(generator.sample(range(5), 3)), []
    for place, text in enumerate(window):
        words = text.split()
        at = generator.randrange(len(words) + 1)
        made.append(" ".join([*words[:at], phrase, *words[at:]]) if place in places else text)
    return made


def template(window: list[str], generator: random.Random) -> list[str]:
    words = [word for text in window for word in text.split()] or ["paper"]
    pick = generator.choice
    return [
        f"Hey {pick(words)} just wanted to {pick(words)} about the {pick(words)} and the new {pick(words)}"
        for _ in window
    ]


def copied(window: list[str], generator: random.Random, every: int) -> list[str]:
    source, target = generator.sample(range(5), 2)
    words = window[source].split()
    if every:
        others = [word for text in window for word in text.split()]
        words = [word if (n + 1) % every else generator.choice(others) for n, word in enumerate(words)]
    return [" ".join(words) if place == target else text for place, text in enumerate(window)]


# ---- said again

# What the limits were set on is every other speaker by name and every other pair of lines, from the first on; measured is the rest.
BEFORE, WINDOW, TALK = 400, 100, 8


def again() -> None:
    print(
        "\nSaid again: a line of the same conversation, in the same or in other words; what people mark was not measured"
    )
    paraphrases()
    worlds = {name: spoken(name) for name in ("series", "chat", "tutor", "play", "tickets")}
    repeats(worlds["series"])
    for name, talk in worlds.items():
        aim = "<= 1.5 %" if name in {"series", "chat"} else ""
        own, common, often, little, looped, total, windows = 0, 0, 0, 0, 0, 0, 0
        for said in talk:
            for start in range(BEFORE, len(said) - WINDOW, 300)[:8]:
                before, now = said[start - BEFORE : start], said[start : start + WINDOW]
                found = said_again_statistics(before, now)
                own, often, total = own + found["said_again"], often + found["often"], total + WINDOW
                common += len(find_said_again([(m.conversation, m.text) for m in now]))
                little += said_again_statistics(before[-40:], now)["often"]
                looped += said_again_statistics(before, in_a_loop(now))["often"]
                windows += 1
        show(f"intact messages, {name}, against its own 400", share(own, total), aim)
        show("    with nothing known of it", share(common, total), aim)
        show("    intact windows of 100 that are a finding", share(often, windows), "<= 1 %")
        show("        with 40 earlier messages", share(little, windows), "<= 1 %")
        show("    the same, every tenth a line of before: a finding", share(looped, windows))


def spoken(world: str) -> list[list[Message]]:
    """Return what the speakers of the half that is measured say, each one's messages in order."""
    import chats

    if world in chats.GENRES:
        made = (chats.made(chats.GENRES[world], seed, BEFORE + 4 * WINDOW) for seed in range(101, 109))
        return [[message for message in messages if message.agent_id == "ann"] for messages in made]
    found: dict[str, list[Message]] = {}
    for message in chats.series() if world == "series" else chats.chat():
        # An episode is a conversation.
        where = str(message.created_at.date()) if world == "series" else message.channel
        found.setdefault(message.agent_id, []).append(replace(message, channel=where))
    return [said for _, said in sorted(found.items()) if len(said) >= BEFORE + WINDOW][1::2]


def paraphrases() -> None:
    """Pairs of lines by others in ten languages, six lines of an agent of its own between the two."""
    found: dict[tuple[str, int], list[bool]] = {}
    for path in sorted((PROJECT / "benchmarks" / "everyday").glob("*.yaml")):
        known = yaml.safe_load(path.read_text(encoding="utf-8"))
        voice, cells = [(str(n // TALK), text) for n, text in enumerate(known["voice"])], []
        for kind in ("said_again", "said_anew"):
            for before in (24, 120):
                hits = [said_after(voice[:before], voice[120:126], *pair) for pair in known[kind][1::2]]
                found.setdefault((kind, before), []).extend(hits)
                cells.append(f"{sum(hits)}/{len(hits)}")
        show(
            f"{path.stem}: said again; its subject, something new",
            f"{cells[1]}; {cells[3]} (24 known: {cells[0]}; {cells[2]})",
        )
    for (kind, before), hits in found.items():
        show(f"ten languages, {before} messages known: {kind.replace('_', ' ')}", share(sum(hits), len(hits)))


def said_after(before: list[tuple[str, str]], between: list[tuple[str, str]], first: str, second: str) -> bool:
    said = [*before, ("now", first), *(("now", text) for _, text in between), ("now", second)]
    found = find_said_again(said, since=len(said) - 1, known=len(before))
    return any(item.earlier == len(before) for item in found)


def repeats(talk: Sequence[list[Message]]) -> None:
    """Lines of eight words and more that come back later in the conversation, after more than five other lines of the speaker."""
    generator = random.Random(7)
    found: dict[str, list[bool]] = {"the same line": [], "every sixth word changed": [], "every third word changed": []}
    last_five = {name: [] for name in found}
    for said in talk:
        texts = [message.text for message in said]
        words = [word for text in texts for word in text.split()]
        for _ in range(40):
            start = generator.randrange(BEFORE, len(said) - 12)
            line = generator.choice([text for text in texts if len(text.split()) >= 8])
            for name, every in zip(found, (0, 6, 3), strict=True):
                copy = [
                    w if not every or (n + 1) % every else generator.choice(words) for n, w in enumerate(line.split())
                ]
                before = [(message.conversation, message.text) for message in said[start - BEFORE : start]]
                between = [("now", text) for text in texts[start : start + 10]]
                found[name].append(said_after(before, between, line, " ".join(copy)))
                window = [text for _, text in between[-4:]] + [" ".join(copy)]
                last_five[name].append(find_repetition(window).level.exceeds(0.3, Level()))
    for name, cells in found.items():
        show(f"{name}, ten lines later", share(sum(cells), len(cells)))
        show("    by the rule of the last five", share(sum(last_five[name]), len(cells)))


def in_a_loop(window: Sequence[Message]) -> list[Message]:
    """Return a window in which every tenth message is one of its earlier ones, said again where that was said."""
    return [window[n - 5] if n % 10 == 9 else message for n, message in enumerate(window)]


# ---- convergence


def channel(voices: Voices, names: Sequence[str], count: int, windows: int, generator: random.Random) -> list[Voices]:
    """Return windows of consecutive lines of each speaker."""
    found = []
    for _ in range(windows):
        starts = {name: generator.randrange(len(voices[name]) - count) for name in names}
        found.append({name: voices[name][starts[name] : starts[name] + count] for name in names})
    return found


def merged(window: Voices, part: float, generator: random.Random) -> Voices:
    """Let a share of the lines change hands by lot; none is said twice."""
    mixed = {name: list(lines) for name, lines in window.items()}
    places = [(name, index) for name, lines in mixed.items() for index in range(len(lines))]
    chosen = generator.sample(places, round(part * len(places)))
    lines = [mixed[name][index] for name, index in chosen]
    generator.shuffle(lines)
    for (name, index), line in zip(chosen, lines, strict=True):
        mixed[name][index] = line
    return mixed


def together(windows: Sequence[Voices]) -> Voices:
    return {name: [line for window in windows for line in window[name]] for name in windows[0]}


def convergence() -> None:
    print(
        "\nConvergence: four speakers, judged parts fixed; the dimension falls by more than 1.0 against another intact window"
    )
    learnt, measured = (said(half) for half in halves())
    aims = {(20, 0.0): "<= 2 %", (20, 0.5): ">= 45 %", (20, 1.0): ">= 60 %"}
    aims |= {(60, 0.0): "<= 2 %", (60, 0.5): ">= 75 %", (60, 1.0): ">= 95 %"}
    names = dialogue.speakers()
    groups = [names[:4], names[1:5], (*names[:3], names[4])]
    for past in (1000,):
        for count in (20, 60):
            falls: dict[float, list[bool]] = {part: [] for part in (0.0, 0.3, 0.5, 1.0)}
            first: dict[float, list[bool]] = {part: [] for part in falls}
            for index, group in enumerate(groups):
                generator = random.Random(index)
                intact = channel(measured, group, count, 50, generator)
                history = {name: learnt[name][-past:] for name in group}
                usual = scores(intact, history, count)
                for part, found in falls.items():
                    others = channel(measured, group, count, 50, generator)
                    now = scores([merged(window, part, generator) for window in others], history, count)
                    drops = [before - after > 1 / 0.3 for before, after in zip(usual, now, strict=True)]
                    found += drops
                    first[part] += drops if index == 0 else []
            for part, found in falls.items():
                what = f"{count} lines each, {past} of history, {part:.0%} merged"
                show(what, share(sum(found), len(found)), aims.get((count, part), "") if past == 1000 else "")
                show("    the four who speak most", share(sum(first[part]), len(first[part])))


def scores(windows: Sequence[Voices], history: Voices, size: int) -> list[float]:
    found = nearness(together(windows), history, size=size)
    return [nearness_score(z) for z in found.parts]


def with_past(
    names: Sequence[str], count: int, windows: int, generator: random.Random, past: int = 1000
) -> Iterator[tuple[Voices, Voices]]:
    """Yield windows of consecutive lines of each speaker, and what it said in the episodes learnt from before them."""
    learnt, measured = halves()
    spoken = {name: [line for line in dialogue.turns(name) if line.text.strip()] for name in names}
    for _ in range(windows):
        window: Voices = {}
        history: Voices = {}
        for name, lines in spoken.items():
            old, own = ([line for line in lines if line.episode in half] for half in (learnt, measured))
            enough = next(index for index, line in enumerate(own) if line.episode > old[past - 1].episode)
            start = generator.randrange(enough, len(own) - count)
            window[name] = [line.text for line in own[start : start + count]]
            history[name] = [line.text for line in old if line.episode < own[start].episode][-past:]
        yield window, history


def clones() -> None:
    print("\nClones: one of four speaks another's lines, or in another's style (its lines of other episodes)")
    measured = said(halves()[1])
    generator = random.Random(3)
    names = dialogue.speakers()
    groups = [names[:4], names[1:5], (*names[:3], names[4]), (names[0], *names[2:5])]
    for count in (20, 60):
        named: dict[str, list[bool]] = {
            "verbatim": [],
            "style": [],
            "right": [],
            "intact": [],
            "merged": [],
            "intact lines": [],
        }
        for group in groups:
            for window, history in with_past(group, count, 15, generator):
                copyist, model = generator.sample(group, 2)
                verbatim = {**window, copyist: window[model]}
                lines = [(name, text) for name in (model, copyist) for text in verbatim[name]]
                before = [(name, text) for name in sorted(history) for text in history[name]]
                found = find_clones(lines, before)
                named["verbatim"].append(any((item.agent_id, item.other) == (copyist, model) for item in found))
                own = [(name, text) for name in group for text in window[name]]
                named["intact lines"].append(bool(find_clones(own, before)))
                if count < FEWEST_NOW:
                    continue
                start = generator.randrange(len(measured[model]) - count)
                style = {**window, copyist: measured[model][start : start + count]}
                alike = find_likeness(nearness(style, history, size=count), style, history)
                named["style"].append(any(copyist in (item.agent_id, item.other) for item in alike))
                named["right"].append(any({item.agent_id, item.other} == {copyist, model} for item in alike))
                usual = find_likeness(nearness(window, history, size=count), window, history)
                named["intact"].append(any(item.kind is Likeness.STYLE for item in usual))
                named["merged"].append(any(item.kind is Likeness.MERGED for item in usual))
        aims = {"verbatim": "100 %", "style": ">= 75 %" if count == 60 else "", "intact": "<= 2 %"}
        texts = {
            "verbatim": "verbatim clone found with its pair",
            "style": "clone in style found",
            "right": "    with the right model",
            "intact": "intact channels with a finding of style",
            "merged": "intact channels with a merged pair",
            "intact lines": "intact channels with a finding of lines",
        }
        for key, found in named.items():
            if found:
                show(f"{count} lines: {texts[key]}", share(sum(found), len(found)), aims.get(key, ""))


def fleet() -> None:
    """Somebody speaks another's lines where the other never is: windows of 60 lines, 400 before, everybody against everybody."""
    print("\nA fleet: one says lines of another's last 400, a share of its own 60; everyday language is nobody's")
    import chats

    people: Voices = {}
    for message in chats.chat():
        people.setdefault(message.agent_id, []).append(message.text)
    chat = {name: people[name] for name in sorted(people, key=lambda name: -len(people[name]))[:100]}
    made: Voices = {}
    for seed in range(10):
        for message in chats.made(chats.GENRES["tickets"], seed, 500):
            made.setdefault(message.agent_id, []).append(message.text)
    series = {name: [line.text for line in dialogue.turns(name)] for name in dialogue.speakers()}
    for world, voices in (("series", series), ("strangers who chat", chat), ("tickets (made up)", made)):
        voices = {name: texts for name, texts in voices.items() if len(texts) >= 460}
        generator, names, nobodys = random.Random(8), sorted(voices), read_lines(EVERYDAY / "en.txt")
        parts = (0.0, 0.2, 0.3, 0.5, 1.0)
        found: dict[float, list[bool]] = {part: [] for part in parts}
        others: list[bool] = []
        for _ in range(20 if len(names) > 20 else 60):
            starts = {name: generator.randrange(len(voices[name]) - 459) for name in names}
            before = [(name, text) for name in names for text in voices[name][starts[name] : starts[name] + 400]]
            generator.shuffle(before)
            now = {name: voices[name][starts[name] + 400 : starts[name] + 460] for name in names}
            copyist, model = generator.sample(names, 2)
            lines = [text for name, text in before if name == model]
            for part in parts:
                copied = generator.sample(lines, round(part * 60))
                window = {**now, copyist: [*copied, *now[copyist][len(copied) :]]}
                lines_now = [(name, text) for name in names for text in window[name]]
                named = {(item.agent_id, item.other) for item in find_clones(lines_now, before, everyday=nobodys)}
                found[part].append((copyist, model) in named)
                if part == 0.0:
                    others.append(bool(named))
        show(f"{world}, {len(names)} voices: intact fleets with a finding", share(sum(others), len(others)), "<= 2 %")
        for part in parts[1:]:
            show(f"    {part:.0%} of its lines are another's", share(sum(found[part]), len(found[part])))


def fluency() -> None:
    print(
        "\nFluency's n-gram part by length of the window (0-9), mean; the same with every fifth message a copy of the one before"
    )
    generator = random.Random(4)
    everything = {name: [line.text for line in dialogue.turns(name)] for name in dialogue.speakers()}
    for count in (5, 20, 80, 320):
        found: list[float] = []
        falls: list[float] = []
        for _ in range(200):
            own = everything[generator.choice(dialogue.speakers())]
            start = generator.randrange(len(own) - count)
            window = own[start : start + count]
            copies = [window[index - 1] if index % 5 == 4 else text for index, text in enumerate(window)]
            intact, copied_part = (ngram_part(texts)[0].score for texts in (window, copies))
            if intact is not None and copied_part is not None:
                found.append(intact)
                falls.append(intact - copied_part)
        show(f"{count} messages", f"{fmean(found):.2f} ± {1.96 * float(np.std(found)) / sqrt(len(found)):.2f}")
        show("    falls by more than 1.0 with the copies", share(sum(fall > 1 for fall in falls), len(falls)))


# ---- voice alarm


def alarm() -> None:
    """Changes and own messages of the scoreboard's characters and of the series, by the protocol of benchmarks/peers."""
    from benchmarks.peers.changes import AFTER, KINDS, Plan, cases
    from benchmarks.peers.drift import OURS, measured
    from benchmarks.peers.here import HERE
    from benchmarks.peers.texts import ADDED, TextWorld, read_worlds, spread

    print("\nVoice alarm: false in 500 own messages; changes noticed within 100 messages")
    worlds, missing = read_worlds()
    series: dict[str, dict[int, list[str]]] = {}
    for line in dialogue.lines():
        if line.speaker in dialogue.speakers() and line.text.strip():
            series.setdefault(line.speaker, {}).setdefault(line.episode, []).append(line.text)
    # More conversations than of the others, so that 500 messages are mostly fresh ones.
    talks = {name: spread(list(episodes.values()), 160) for name, episodes in series.items()}
    drawn = list(cases([*worlds, TextWorld("series", "en", talks)], Plan(calibration=1), 1))
    for what, why in missing.items():
        print(f"  {what}: {why}")
    groups = {
        "tuned on": [n for n, case in enumerate(drawn) if case.world != "series" and case.character not in ADDED],
        "added since": [n for n, case in enumerate(drawn) if case.character in ADDED],
        "series": [n for n, case in enumerate(drawn) if case.world == "series"],
    }
    words = [fmean(len(case.texts[place].split()) for place in case.history) for case in drawn]
    for party in OURS:
        found = []
        for case in drawn:
            detect, streams = HERE[party](case.as_json()), case.streams
            found.append({"streams": {kind: list(map(detect, own)) for kind, own in streams.items()}})
            found[-1] |= {"learnt": 0.0, "read": (0.0, 1)}
        alarms = measured(party, found).documented
        assert alarms is not None
        for name, only in groups.items():
            show(f"{party}; {name}, {len(only)} characters: false", str(alarms.false_alarms(only)), "<= 5 %")
            for kind in KINDS:
                show(f"    {kind}", str(alarms.seen([kind], AFTER, only)))
            long_ones = [n for n in only if words[n] >= 15]
            show("    flattened, messages of 15 words and more", str(alarms.seen(["flattened"], AFTER, long_ones)))
            delays = ", ".join(f"{kind} {alarms.delay([kind], only):.0f}" for kind in KINDS)
            show("    median number of messages until the alarm", delays)


SECTIONS = {
    "agreement": agreement,
    "repetition": repetition,
    "again": again,
    "convergence": convergence,
    "clones": clones,
    "fleet": fleet,
    "fluency": fluency,
    "alarm": alarm,
}

if __name__ == "__main__":
    for section in sys.argv[1:] or SECTIONS:
        SECTIONS[section]()
