"""Draw anchors: labelled messages, and messages of two agents, each shown under both names.

A judge that only looks at the text, or only at the name, is right about half of the swapped messages: each text is in character
under one name and out under the other.
"""

import math
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain, combinations, zip_longest
from pathlib import Path
from typing import NamedTuple

from persona_pipeline.guard.anchors import SIZE, Anchor, AnchoredAgent
from persona_pipeline.guard.labels.messages import MarkSource, MessageLabel, majority
from persona_pipeline.scoring.messages.reading import Character
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.world.models import grouped
from persona_pipeline.world.propositions.models import Proposition

# Length of a message that shows a character and is quick to read; of a labelled message.
SHORTEST, LONGEST, LONGEST_LABELLED = 40, 600, 2000
# Oldest messages of an agent that are used, from before any change. With fewer than 5 it has no anchors, with fewer than 10 it is
# not compared with other agents.
MOST_READ, FEWEST, FEWEST_OF_A_PAIR = 50, 5, 10
# Agents from which the pair is chosen.
MOST_AGENTS = 6
# Two agents whose messages are distinguished less often are too alike to be swapped.
_TOLD_APART = 0.7
_STOCK = Path(__file__).parent / "data" / "stock.toml"


class _Pair(NamedTuple):
    """Two agents and their messages, the most typical first. ``apart``: share of messages that are distinguished, 0-1."""

    agents: tuple[str, str]
    texts: tuple[list[str], list[str]]
    apart: float


def draw_anchors(
    characters: Mapping[str, Character],
    said: Mapping[str, Sequence[str]],
    labels: Sequence[MessageLabel] = (),
    size: int = SIZE,
) -> list[AnchoredAgent]:
    """Return up to ``size`` anchors, the same ones each time; none where no agent has said enough.

    Of each agent people's labels count as far as there are as many in as out. Two agents that write alike are not swapped: one of
    them is with a stock character.

    Args:
        characters: of the agents, by id.
        said: their messages, oldest first, from a time in which they were in character.
    """
    found = {agent_id: list(own) for agent_id, own in _labelled(characters, labels, size).items()}
    missing = (size - sum(map(len, found.values()))) // 2
    texts = {agent_id: _usable(own) for agent_id, own in sorted(said.items()) if agent_id in characters}
    texts = {agent_id: own for agent_id, own in texts.items() if len(own) >= FEWEST}
    stock, lines = _stock()
    pair = _pair(texts, (stock.agent_id, lines)) if missing else None
    if pair is None:
        return [AnchoredAgent.of(characters[agent_id], own) for agent_id, own in found.items()]
    sides = [[(name, text) for text in own] for name, own in zip(pair.agents, pair.texts, strict=True)]
    chosen = [item for item in chain(*zip_longest(*sides)) if item][:missing]
    known = {item.text for own in found.values() for item in own}
    for writer, text in chosen:
        for agent_id in pair.agents:
            if text not in known:
                verdict = Role.IN if agent_id == writer else Role.OUT
                found.setdefault(agent_id, []).append(Anchor(text=text, verdict=verdict))
    everybody = {**characters, stock.agent_id: stock}
    return [AnchoredAgent.of(everybody[agent_id], own) for agent_id, own in found.items()]


def _usable(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(text for text in texts if SHORTEST <= len(text.strip()) <= LONGEST))[:MOST_READ]


def _labelled(
    characters: Mapping[str, Character], labels: Sequence[MessageLabel], size: int
) -> dict[str, list[Anchor]]:
    """Return labelled messages, as many in as out of character by agent: else its usual verdict would be right."""
    of_people = (item for item in labels if item.source is MarkSource.PERSON and len(item.text) <= LONGEST_LABELLED)
    asked = (item for item in of_people if item.agent_id in characters)
    given = {key: (own[0], majority(own)) for key, own in sorted(grouped(asked, lambda item: item.key).items())}
    by_agent = grouped(given.values(), lambda pair: pair[0].agent_id)
    pairs = dict[str, list[tuple[MessageLabel, MessageLabel]]]()
    for agent_id, own in by_agent.items():
        sides = ([label for label, verdict in own if verdict is role] for role in (Role.IN, Role.OUT))
        pairs[agent_id] = list(zip(*sides, strict=False))
    # Two agents with the most, so that few calls are needed.
    most = sorted(filter(pairs.get, pairs), key=lambda name: (-len(pairs[name]), name))[:2]
    turns = [
        (name, pair)
        for turn in zip_longest(*(pairs[name] for name in most))
        for name, pair in zip(most, turn, strict=True)
        if pair
    ]
    found = dict[str, list[Anchor]]()
    for agent_id, (good, bad) in turns[: size // 2]:
        for label, verdict in ((good, Role.IN), (bad, Role.OUT)):
            found.setdefault(agent_id, []).append(Anchor(text=label.text, verdict=verdict, by_people=True))
    return found


def _pair(texts: Mapping[str, list[str]], stock: tuple[str, list[str]]) -> _Pair | None:
    """Return the two agents that are easiest to distinguish; an agent and a stock character where all write alike."""
    talkative = sorted(texts, key=lambda name: (-len(texts[name]), name))[:MOST_AGENTS]
    if not talkative:
        return None
    enough = [name for name in talkative if len(texts[name]) >= FEWEST_OF_A_PAIR]
    pairs = [_compared((one, texts[one]), (other, texts[other])) for one, other in combinations(enough, 2)]
    best = max(pairs, key=lambda pair: pair.apart, default=None)
    if best is not None and best.apart >= _TOLD_APART:
        return best
    return _compared((talkative[0], texts[talkative[0]]), stock)


def _compared(one: tuple[str, list[str]], other: tuple[str, list[str]]) -> _Pair:
    sides = (one, other)
    grams = [[_grams(text) for text in texts] for _, texts in sides]
    totals = [sum(own, Counter[str]()) for own in grams]
    scores = list[dict[str, float]]()
    for side in (0, 1):
        found = (_likelihood(gram, totals[side], totals[1 - side]) for gram in grams[side])
        scores.append(dict(zip(sides[side][1], found, strict=True)))
    ordered = [sorted(found, key=lambda text: (-found[text], text)) for found in scores]
    hits = [score > 0 for found in scores for score in found.values()]
    return _Pair((one[0], other[0]), (ordered[0], ordered[1]), sum(hits) / len(hits))


def _grams(text: str) -> Counter[str]:
    text = f" {' '.join(text.casefold().split())} "
    return Counter(text[at : at + 3] for at in range(len(text) - 2))


def _likelihood(gram: Counter[str], own: Counter[str], others: Counter[str]) -> float:
    """Return by how much a text is likelier among its writer's other texts than among another's (naive Bayes)."""
    # Without the text itself, which is one of the writer's.
    level = math.log((others.total() + 1) / (own.total() - gram.total() + 1))
    return sum(n * (math.log((own[key] - n + 0.5) / (others[key] + 0.5)) + level) for key, n in gram.items())


@cache
def _stock() -> tuple[Character, list[str]]:
    """Return a stock character that is not an agent, and its lines."""
    data = tomllib.loads(_STOCK.read_text("utf-8"))
    claims = [Proposition(f"stock-{place}", claim) for place, claim in enumerate(data["claims"], 1)]
    return Character("stock-character", data["name"], data["persona"], claims), data["lines"]
