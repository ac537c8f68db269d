"""Numbers that rest on messages, turns, scenes or weeks that are not independent: how often they are right.

    python benchmarks/independence.py [compare] [fading] [voice] [clock] [repetition] [--runs 300] [--seed 1]

Without names all of them run. Shares have Wilson's 95 % intervals. Set OPENBLAS_NUM_THREADS=1 where cores are shared.

**compare**: a version called better or worse that is neither, and one worse by a point that is seen. Scenes of one conversation
share what the version does to it: half of the variance of a difference (icc .5) or a tenth. ``normal``; ``heavy``: conversations
differ by Student's t with 3 degrees of freedom, with 2 to 18 scenes; ``judged``: scores of 0-9, rounded, 5 % of them anything.
Windows follow one another with an autocorrelation. *As before*: each scene and each window a bet of its own.

**fading**: what the assert ``fades`` says of one conversation of 20 turns. *Never* are of one level and sd, with noise that goes on
from turn to turn (``ar``) or a mood that a conversation has; *lost* are for good at a turn drawn from a geometric distribution.

**voice**: false alarms in an agent's next 500 messages, in their order, by how many of its own the voice was learnt from, and after
how many messages it is noticed when somebody else speaks for it. Worlds are those of benchmarks/chats.py. Learnt is from the
conversations that the agent is in, from at most twice as many messages of others as of its own.

**clock**: how far references, and the messages until an alarm, move when the same texts are said at other times, everybody's or
only the others', or as one channel or a channel a conversation: the most that any side moves. Worlds are those of **voice**.

**repetition**: how often five intact messages of an agent fire, by the rule that is the same for all and against 400 of its own
earlier messages, and how often five that repeat one another in a way that is new to it.
"""

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

import chats
from signals import share

from persona_pipeline.guard.baselines.statistics import DIMENSIONS_SHARE, LEVEL, paired_change
from persona_pipeline.lab.compare.scenes import block_length
from persona_pipeline.lab.compare.tally import ScoreSeries
from persona_pipeline.scoring.adherence import MessageValue, character_end
from persona_pipeline.scoring.text.repetition import MOST_USUAL, excessive_repetition
from persona_pipeline.scoring.voice_alarm.learning import conversations as conversations_of
from persona_pipeline.scoring.voice_alarm.learning import learn_voice
from persona_pipeline.scoring.voice_alarm.model import ALARM, VoiceModel
from persona_pipeline.world.models import CorrectionSettings, Message

Generator = np.random.Generator
Talk = np.ndarray


# ---- compare

SCENES, CLAIMS = 10, 5


def conversations(generator: Generator, world: str, count: int, icc: float, drop: float) -> list[np.ndarray]:
    """Return differences of the scenes of each conversation, of sd 1 where nothing is rounded."""
    found = []
    for _ in range(count):
        scenes = int(generator.integers(2, 19)) if world == "heavy" else SCENES
        shared = generator.standard_t(3) / math.sqrt(3) if world == "heavy" else generator.standard_normal()
        shift = math.sqrt(icc) * shared - drop
        own = math.sqrt(1 - icc) * generator.standard_normal(scenes)
        if world != "judged":
            found.append(shift + own)
            continue
        level = generator.normal(7, 0.7, (scenes, 1))
        sides = []
        for side in (np.zeros(scenes), shift + own):
            said = level + side[:, None] + generator.normal(0, 1, (scenes, CLAIMS))
            odd = generator.random(said.shape) < 0.05
            said = np.clip(np.rint(np.where(odd, generator.uniform(-0.5, 9.5, said.shape), said)), 0, 9)
            sides.append(said.mean(axis=1))
        found.append(sides[1] - sides[0])
    return found


def weeks(generator: Generator, count: int, correlation: float, drop: float) -> np.ndarray:
    noise = generator.standard_normal(count)
    for week in range(1, count):
        noise[week] = correlation * noise[week - 1] + math.sqrt(1 - correlation**2) * noise[week]
    return noise - drop


def shown(bets: Sequence[np.ndarray]) -> bool:
    """Return whether the product's bets, one each, show a change at any time."""
    series, level = ScoreSeries(), LEVEL * DIMENSIONS_SHARE
    for bet in bets:
        series.going = [(0.0, float(value)) for value in bet]
        series.close()
    return paired_change(series.differences, level, interval=False).p_value <= level


def measure_compare(runs: int, seed: int) -> None:
    generator = np.random.default_rng(seed)

    def line(what: str, drawn: Callable[[float], tuple[Sequence[np.ndarray], Sequence[np.ndarray]]]) -> None:
        same, worse = ([drawn(drop) for _ in range(runs)] for drop in (0.0, 1.0))
        cells = [sum(shown(item[way]) for item in found) for found in (same, worse) for way in (0, 1)]
        print(f"| {what} | {' | '.join(share(hits, runs) for hits in cells)} |", flush=True)

    print(f"level {LEVEL * DIMENSIONS_SHARE}, as for one dimension of one agent\n")
    print("| | same: reported, as before | now | 1 point worse: seen, as before | now |\n|:--|--:|--:|--:|--:|")
    for world in ("normal", "heavy", "judged"):
        for icc in (0.5, 0.1):
            for count in (4, 10, 40):

                def drawn(drop: float, of=(world, count, icc)) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
                    found = conversations(generator, *of, drop)
                    return generator.permutation(np.concatenate(found))[:, None], found

                line(f"{count} conversations, {world}, icc {icc}", drawn)
    for correlation in (0.0, 0.5, 0.8):
        for count in (8, 16, 40, 80):

            def windows(drop: float, of=(count, correlation)) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
                found = weeks(generator, *of, drop)
                length = block_length(len(found))
                blocks = [found[start : start + length] for start in range(0, len(found), length)]
                order = generator.permutation(len(blocks))
                return generator.permutation(found)[:, None], [blocks[place] for place in order]

            line(f"{count} windows, autocorrelation {correlation}", windows)


# ---- fading


def never(generator: Generator, level: float, sd: float, correlation: float = 0.0, mood: float = 0.0) -> Talk:
    """Return the scores of a conversation whose character does not fade."""
    noise = generator.standard_normal(int(generator.integers(10, 61)))
    for turn in range(1, len(noise)):
        noise[turn] = correlation * noise[turn - 1] + math.sqrt(1 - correlation**2) * noise[turn]
    return np.clip(np.rint(level + mood * generator.standard_normal() + sd * noise), 0, 9)


STEADY: Mapping[str, Callable[[Generator], Talk]] = {
    "never, level 6, sd 2": lambda g: never(g, 6, 2),
    "never, level 5, sd 2": lambda g: never(g, 5, 2),
    "never, level 7.5, sd 2.5": lambda g: never(g, 7.5, 2.5),
    "never, level 6, sd 2, ar .6": lambda g: never(g, 6, 2, 0.6),
    "never, level 6, sd 1.5, mood sd 1.5": lambda g: never(g, 6, 1.5, 0.3, 1.5),
}
FADING = {"7.5 to 2.5, sd 1": (7.5, 2.5, 1.0), "6.5 to 3.5, sd 1.5": (6.5, 3.5, 1.5), "6.5 to 3, sd 2": (6.5, 3.0, 2.0)}


def measure_fading(runs: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    print("| one conversation of 20 turns, lost by the 10th | said | right where it was lost or not |\n|:--|--:|--:|")
    for name, make in STEADY.items():
        said = [_lost_by(np.resize(make(generator), 20), 10) for _ in range(10 * runs)]
        print(f"| {name} | {share(sum(said), len(said))} | |", flush=True)
    for world, planted in FADING.items():
        said, right = [], []
        for _ in range(10 * runs):
            end = int(generator.geometric(1 - 2 ** (-1 / 10)))
            held, gone, sd = planted
            levels = np.where(np.arange(1, 21) < end, held, gone)
            said.append(_lost_by(np.clip(np.rint(levels + sd * generator.standard_normal(20)), 0, 9), 10))
            right.append(said[-1] is (end <= 10))
        print(
            f"| half-life 10, {world} | {share(sum(said), len(said))} | {share(sum(right), len(right))} |", flush=True
        )


def _lost_by(talk: Talk, turn: int) -> bool:
    """Return whether one conversation alone has lost its character by a turn, as the assert ``fades`` says it."""
    end, gone = character_end([MessageValue(n, float(v)) for n, v in enumerate(talk, 1)])
    return gone and end <= turn


# ---- voice

WORLDS, COUNTS = ("tickets", "chat", "series"), (40, 100, 300, 800)


def learnable(messages: Sequence[Message], agent_id: str) -> list[Message]:
    """Return the messages of conversations that an agent is in, at most twice as many of others as of its own."""
    talks = places_of(messages)
    own = {talk for talk, message in zip(talks, messages, strict=True) if message.agent_id == agent_id}
    near = [message for talk, message in zip(talks, messages, strict=True) if talk in own]
    others = [place for place, message in enumerate(near) if message.agent_id != agent_id]
    kept = {
        others[n] for n in np.linspace(0, len(others) - 1, min(len(others), 2 * (len(near) - len(others)))).astype(int)
    }
    return [message for place, message in enumerate(near) if message.agent_id == agent_id or place in kept]


def places_of(messages: Sequence[Message]) -> list[int]:
    return conversations_of(messages).tolist()


def noticed(model: VoiceModel, texts: Sequence[str]) -> int | None:
    """Return after how many messages an agent's sum reaches the threshold."""
    totals = np.zeros(len(model.sides))
    for number, text in enumerate(texts, start=1):
        totals = np.maximum(0.0, totals + model.steps(text))
        if totals.max() >= ALARM:
            return number
    return None


def measure_voice(runs: int, seed: int) -> None:
    print(
        "| world | learnt from | is followed | false alarms in the next 500 | another seen within 200 | median delay |"
    )
    print("|:--|--:|--:|--:|--:|--:|", flush=True)
    for world in WORLDS:
        for count in COUNTS:
            false, delays, tried = [], [], 0
            for name, messages in chats.drawn(world, runs, count + 500, seed):
                own = [place for place, message in enumerate(messages) if message.agent_id == name]
                model = learn_voice(name, learnable(messages[: own[count - 1] + 1], name))
                if model is None:
                    continue
                tried += 1
                if not model.tells:
                    continue
                false.append(noticed(model, [messages[place].text for place in own[count:]]) is not None)
                later = [message for message in messages[own[count - 1] + 1 :] if message.agent_id != name]
                if not later:
                    continue
                other = Counter(message.agent_id for message in later).most_common(1)[0][0]
                delays.append(noticed(model, [item.text for item in later if item.agent_id == other][:200]))
            seen = [delay for delay in delays if delay is not None]
            rates = (share(sum(false), len(false)), share(len(seen), len(delays))) if false else ("–", "–")
            middle = f"{np.median([math.inf if delay is None else delay for delay in delays]):g}" if delays else "–"
            followed = share(len(false), tried) if tried else "–"
            print(f"| {world} | {count} | {followed} | {rates[0]} | {rates[1]} | {middle} |", flush=True)


# ---- repetition

OPENERS = ("Allow me to say", "Listen to me now", "Here is the thing")
PHRASES = ("at the end of the day", "when push comes to shove", "as I said before")


def repeated(texts: list[str], kind: str, generator: Generator) -> list[str]:
    """Return five messages that repeat one another in a way of their own: an opener or phrase in three, a copy, a template."""
    places = generator.choice(5, 3, replace=False)
    if kind == "template":
        words = " ".join(texts).split()
        pick = [[str(word) for word in generator.choice(words, 4)] for _ in texts]
        return [f"Hey {a} just wanted to {b} about the {c} and the new {d}" for a, b, c, d in pick]
    if kind == "copy":
        return [texts[places[0]] if place == places[1] else text for place, text in enumerate(texts)]
    if kind == "opener":
        words = str(generator.choice(OPENERS))
        return [f"{words}, {text}" if place in places else text for place, text in enumerate(texts)]
    words = str(generator.choice(PHRASES))
    return [f"{text} {words}" if place in places else text for place, text in enumerate(texts)]


def measure_repetition(runs: int, seed: int) -> None:
    kinds = ("opener", "phrase", "template", "copy")
    print("| world | intact, the same rule for all | against its own history | " + " | ".join(kinds) + " |")
    print("|:--|--:|--:|--:|--:|--:|--:|", flush=True)
    limit = CorrectionSettings().repetition_threshold
    for world in ("series", "chat", "tutor", "play", "tickets"):
        generator, fired = np.random.default_rng(seed), Counter[str]()
        for name, messages in chats.drawn(world, runs, MOST_USUAL + 55, seed):
            own = [message.text for message in messages if message.agent_id == name]
            history, latest = own[:MOST_USUAL], own[-5:]
            fired["all"] += excessive_repetition(latest, limit) is not None
            fired["own"] += excessive_repetition(latest, limit, history=history) is not None
            for kind in kinds:
                made = repeated(latest, kind, generator)
                fired[kind] += excessive_repetition(made, limit, history=history) is not None
        print(f"| {world} | {' | '.join(share(fired[kind], runs) for kind in ('all', 'own', *kinds))} |", flush=True)


# ---- clock

LEARNT_FROM = 400


def told_at(messages: Sequence[Message], minutes: float, who: str = "") -> list[Message]:
    """Return messages in the same order, so many minutes apart; ``who`` keeps its own times where that is possible."""
    found, at = list[Message](), chats.FIRST_DAY
    for message in messages:
        at = (
            max(at + timedelta(minutes=minutes), message.created_at)
            if message.agent_id == who
            else at + timedelta(minutes=minutes)
        )
        found.append(replace(message, created_at=at))
    return found


def placed(messages: Sequence[Message], one: bool) -> list[Message]:
    """Return messages in one channel, or in a channel for each conversation."""
    return [
        replace(message, channel="all" if one else f"talk {talk}", recipient=None)
        for message, talk in zip(messages, places_of(messages), strict=True)
    ]


def measure_clock(runs: int, seed: int) -> None:
    changes: dict[str, Callable[[list[Message], str], list[Message]]] = {
        f"{minutes} minutes apart": lambda said, _, minutes=minutes: told_at(said, minutes)
        for minutes in (5, 20, 90, 1440)
    }
    changes["the others 20 minutes apart"] = lambda said, name: told_at(said, 20, name)
    changes["one channel for everything"] = lambda said, _: placed(said, one=True)
    changes["a channel a conversation"] = lambda said, _: placed(said, one=False)
    print("| world | change | voices | the same are held against it | reference moves by | messages until an alarm |")
    print("|:--|:--|--:|--:|--:|--:|", flush=True)
    for world in WORLDS:
        drawn = chats.drawn(world, runs, LEARNT_FROM, seed)
        known = [(name, near, learn_voice(name, near)) for name, said in drawn for near in [learnable(said, name)]]
        for what, change in changes.items():
            moved, later, same = [], [], 0
            for name, near, before in known:
                now = learn_voice(name, change(near, name))
                if before is None or now is None:
                    continue
                sides = {side.other: side for side in before.sides}
                same += [side.other for side in now.sides] == list(sides)
                pairs = [(sides[side.other], side) for side in now.sides if side.other in sides]
                moved += [max(abs(b.reference - a.reference) / abs(a.reference) for a, b in pairs)] if pairs else []
                later += [max(abs(b.delay - a.delay) / a.delay for a, b in pairs)] if pairs else []
            cells = [f"{np.median(found):.1%}, most {max(found):.1%}" if found else "–" for found in (moved, later)]
            print(f"| {world} | {what} | {len(known)} | {same} | {' | '.join(cells)} |", flush=True)


SECTIONS = {
    "compare": measure_compare,
    "fading": measure_fading,
    "voice": measure_voice,
    "clock": measure_clock,
    "repetition": measure_repetition,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join(SECTIONS))
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name in options.sections or SECTIONS:
        print(f"\n{name}: {options.runs} runs a line, seed {options.seed}\n")
        SECTIONS[name](options.runs, options.seed)


if __name__ == "__main__":
    main()
