"""What becomes of contradictions planted in what characters say of themselves: found, false, calls and dollars.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/facts.py [--seed 1]

Three unlike worlds (benchmarks/self_facts) of 200 conversations each: English companions in direct messages, German villagers, a
Spanish service desk. In each stand pairs of lines that contradict, and pairs that nearly do: an age after a birthday, a
sister and a sister-in-law, irony, what others said, what is only supposed, an opinion with its reason. A stand-in for the model
answers over a real socket, through the SDK. It knows the lines, and errs as often as it is told:

    careful    never errs
    usual      overlooks 10 % of facts and of contradictions, makes up a fact in 5 % of conversations, calls 5 % of near misses
               contradictions, and names the wrong lines for 5 % of contradictions
    poor       30 %, 30 %, 20 %, 20 % and 15 %
    by value   reads carefully and calls every two statements of a kind with other words contradictions

A fact that is made up is a quote nobody said, the user's words, or a line that was no statement (irony, others, a supposition) in
equal parts. So this measures what the pipeline does with what a model says. How often a real model errs is not measured here.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.run import read_facts
from persona_pipeline.judging.open import JudgeOptions, open_judge
from persona_pipeline.scoring.results import add_usage
from persona_pipeline.testing.worlds import WorldBuilder
from tests.support.messages_server import Call, MessagesServer, Reply, message

WORLDS = sorted((PROJECT / "benchmarks" / "self_facts").glob("*.yaml"))
START = datetime(2026, 1, 5, 9, tzinfo=UTC)
# Share of facts overlooked, conversations with a fact made up, contradictions overlooked, near misses called, lines named wrong.
MODELS: Mapping[str, tuple[float, float, float, float, float]] = {
    "careful": (0, 0, 0, 0, 0),
    "usual": (0.1, 0.05, 0.1, 0.05, 0.05),
    "poor": (0.3, 0.2, 0.3, 0.2, 0.15),
    "by value": (0, 0, 0, 1, 0),
}
MADE_UP = "I never said these very words."
Line = tuple[str, list[Any] | None, list[Any] | None]


@dataclass
class Planted:
    """A world: what its lines say, and which pairs of an agent's lines contradict or nearly do."""

    name: str
    spoken: dict[str, list[list[tuple[str, str]]]] = field(default_factory=dict)
    facts: dict[str, list[Any]] = field(default_factory=dict)
    wrong: dict[str, list[Any]] = field(default_factory=dict)
    contradict: set[frozenset[str]] = field(default_factory=set)
    near: set[frozenset[str]] = field(default_factory=set)
    planted: Counter[str] = field(default_factory=Counter)


def plant(path: Path, seed: int) -> tuple[Planted, dict[str, Any]]:
    data, dice, world = (
        yaml.safe_load(path.read_text(encoding="utf-8")),
        random.Random(f"{seed} {path.stem}"),
        Planted(path.stem),
    )
    users = [item if isinstance(item, dict) else {"text": item} for item in data["user"]]
    world.wrong |= {item["text"]: item["wrong"] for item in users if "wrong" in item}
    for item in data["pairs"]:
        pair = frozenset((item["first"], item["second"]))
        (world.contradict if item.get("contradicts") else world.near).add(pair)
        for side, fact in (("first", "fact"), ("second", "fact2")):
            if item[fact] is not None:
                world.facts[item[side]] = item[fact]
        if "wrong" in item:
            world.wrong[item["second"]] = item["wrong"]
    for number in range(data["agents"]):
        agent, chosen, topics = f"agent{number:02}", [], set[str]()
        for contradicts, most in ((True, data["contradictions"]), (False, data["near"])):
            items = [item for item in data["pairs"] if item.get("contradicts", False) is contradicts]
            dice.shuffle(items)
            taken = 0
            for item in items:
                if taken < most and item["topic"] not in topics:
                    topics.add(item["topic"])
                    chosen.append(item)
                    taken += 1
                    world.planted["contradictions" if contradicts else "near"] += 1
        talks: list[list[tuple[str, str]]] = [[] for _ in range(data["talks"])]
        places = dice.sample(range(data["talks"]), 2 * len(chosen))
        for item, pair in zip(chosen, zip(*[iter(places)] * 2, strict=True), strict=True):
            for place, side in zip(sorted(pair), ("first", "second"), strict=True):
                talks[place].append((agent, item[side]))
        for talk in talks:
            planted, talk[:] = list(talk), []
            for _ in range(dice.randint(6, 20) if data.get("long") else dice.randint(1, 3)):
                talk += [("user", dice.choice(users)["text"]), (agent, dice.choice(data["agent"]))]
            for line in planted:
                at = dice.randrange(len(talk) + 1)
                talk[at:at] = [("user", dice.choice(users)["text"]), line]
        world.spoken[agent] = talks
    return world, data


def written(root: Path, world: Planted, direct: bool) -> None:
    builder, number = WorldBuilder(root), 0
    for agent in world.spoken:
        builder.persona(agent, "Somebody.")
    builder.claim("adherence", "somebody", "{{agent_name}} is somebody")
    for day in range(max(map(len, world.spoken.values()))):
        for place, (agent, talks) in enumerate(world.spoken.items()):
            for minute, (speaker, text) in enumerate(talks[day] if day < len(talks) else ()):
                number += 1
                at = START + timedelta(days=day, hours=3 * (place % 8), seconds=20 * minute + place)
                other = "user" if speaker == agent else agent
                where = {"recipient": f"{other}"} if direct else {"channel": f"inn-{place}"}
                builder.say(speaker, text, at=at, **where)


class Model:
    """Answers the two questions from the lines it knows, and errs as it is told."""

    def __init__(self, world: Planted, name: str, seed: int) -> None:
        self.world, self.name, self.seed = world, name, seed
        self.overlooks, self.makes_up, self.misses, self.calls_near, self.misnames = MODELS[name]
        self.said: Counter[str] = Counter()

    def __call__(self, call: Call) -> Reply:
        shown, dice = json.loads(call.evidence), random.Random(f"{self.seed} {self.name} {call.evidence}")
        self.said["calls"] += 1
        if "speaker" in shown[0]:
            return message(json.dumps({"facts": list(self.facts(shown, dice))}))
        return message(json.dumps({"contradictions": list(self.contradictions(shown, dice))}))

    def facts(self, shown: Sequence[dict[str, Any]], dice: random.Random) -> Iterator[dict[str, Any]]:
        own = [entry for entry in shown if entry["speaker"] == "AGENT"]
        for entry in own:
            if entry["text"] in self.world.facts and dice.random() >= self.overlooks:
                yield listed(entry["id"], entry["text"], self.world.facts[entry["text"]])
        if dice.random() < self.makes_up:
            wrong = [(entry["speaker"] == "AGENT", entry) for entry in shown if entry["text"] in self.world.wrong]
            tempting = [
                (is_own, (entry["id"], entry["text"], self.world.wrong[entry["text"]])) for is_own, entry in wrong
            ]
            kinds = {
                "made-up quotes": [(own[0]["id"], MADE_UP, ["age", "", "99"])],
                "users' words": [some for is_own, some in tempting if not is_own],
                "no statements": [some for is_own, some in tempting if is_own],
            }
            kind = dice.choice([name for name, some in kinds.items() if some])
            self.said[kind] += 1
            yield listed(*dice.choice(kinds[kind]))

    def contradictions(self, shown: Sequence[dict[str, Any]], dice: random.Random) -> Iterator[dict[str, Any]]:
        for first, second in combinations(shown, 2):
            pair = frozenset((first["text"], second["text"]))
            alike = first["kind"] == second["kind"] and first["value"] != second["value"]
            if pair in self.world.contradict:
                told = dice.random() >= self.misses
            else:
                near = (
                    alike if self.name == "by value" else pair in self.world.near or first["text"] in self.world.wrong
                )
                told = near and dice.random() < self.calls_near
            if told:
                other = dice.choice(shown) if dice.random() < self.misnames else second
                sides = {"first": quoted(first), "second": {"message": other["id"], "quote": second["text"]}}
                yield {**sides, "reasoning": "they clash", "verdict": "contradiction"}


def listed(entry: str, text: str, fact: Sequence[Any]) -> dict[str, Any]:
    kind, about, value = fact[:3]
    said = {"kind": kind, "about": about, "value": value, "holds": len(fact) < 4}
    return {"evidence": {"message": entry, "quote": text}, **said}


def quoted(row: Mapping[str, Any]) -> dict[str, str]:
    return {"message": row["id"], "quote": row["text"]}


def measured(path: Path, name: str, seed: int) -> dict[str, Any]:
    planted, data = plant(path, seed)
    model = Model(planted, name, seed)
    with tempfile.TemporaryDirectory() as folder, MessagesServer(model) as server:
        os.environ |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "stand-in"}
        written(Path(folder), planted, data["direct"])
        world = WorldBuilder(folder).open(f"sqlite:///{folder}/store.db")
        request, began = EvaluationRequest(window="all", facts=True), time.perf_counter()
        found = read_facts(world, open_judge("anthropic", world, JudgeOptions()), request)
        seconds, paid = time.perf_counter() - began, server.paid
        read_facts(world, open_judge("anthropic", world, JudgeOptions()), request)
        again = server.paid - paid
        world.store.close()
    pairs = [frozenset((item.first.line, item.second.line)) for own in found for item in own.contradictions]
    usage = add_usage(own.usage for own in found)
    left_out = sum((Counter(own.left_out) for own in found), Counter())
    true = sum(pair in planted.contradict for pair in pairs)
    made_up = sum(
        MADE_UP in pair or any(text in planted.wrong and text not in planted.facts for text in pair) for pair in pairs
    )
    return {
        "world": path.stem,
        "model": name,
        "conversations": sum(own.conversations for own in found),
        "read": sum(own.read for own in found),
        "facts": sum(len(own.facts) for own in found),
        "planted": planted.planted["contradictions"],
        "found": true,
        "near": planted.planted["near"],
        "false": len(pairs) - true,
        "by_made_up_quotes": sum(MADE_UP in pair for pair in pairs),
        "on_no_statements": made_up,
        "model_made_up": {key: count for key, count in model.said.items() if key != "calls"},
        "left_out": dict(left_out),
        "calls": paid,
        "again": again,
        "agents": len(found),
        "usd": usage.usd,
        "seconds": seconds,
    }


def main() -> None:
    """Print a line a world and model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    columns = (
        "world",
        "model",
        "read",
        "facts",
        "found of planted",
        "false (near misses planted)",
        "by made-up quotes",
    )
    print(f"| {' | '.join(columns)} | calls (again) | $ | s |\n|{'---|' * 10}")
    for path in WORLDS:
        for name in MODELS:
            row = measured(path, name, chosen.seed)
            said = row["model_made_up"].get("made-up quotes", 0)
            cells = [row["world"], name, f"{row['read']}/{row['conversations']}", row["facts"]]
            cells += [f"{row['found']}/{row['planted']}", f"{row['false']} ({row['near']})"]
            cells += [f"{row['by_made_up_quotes']}/{said}", f"{row['calls']} ({row['again']})"]
            cells += [f"{row['usd']:.4f}", f"{row['seconds']:.1f}"]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
            if chosen.json:
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
