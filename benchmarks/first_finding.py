"""How often ``persona-pipeline try`` finds something for nothing, whether it finds a change and when it says that it began.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/first_finding.py intact [--runs 20]    exports in which nobody changes
     OPENBLAS_NUM_THREADS=1 python benchmarks/first_finding.py drift [--runs 20]     a voice becomes a stock assistant, or another's
     OPENBLAS_NUM_THREADS=1 python benchmarks/first_finding.py walk                 the command on the sample world, three formats
     OPENBLAS_NUM_THREADS=1 python benchmarks/first_finding.py speed                 seconds and MB at 10,000 and 50,000 messages

An export is a list of messages in order of time; ``cast_of`` and ``first_look`` are what the command calls. Worlds:

    support   the ten invented support voices of benchmarks/everyday, 160 messages each, their conversations in an order drawn
              at random: one alone, or three languages in one export
    tickets, tutor, play   made-up agents of invented words (benchmarks/chats.py), four in an export
    series    stretches of a television series, the twelve who say most (real; downloaded)
    chat      strangers who chat (real; downloaded)

In *drift* the voices of support say 40 more lines of a kind of stock language, from 60 % of the way on; in the made-up worlds
another speaker's messages come under ``ann`` from there on.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import yaml

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))
sys.path.insert(0, str(PROJECT / "benchmarks"))

import chats
from scipy.stats import binomtest

from persona_pipeline.lab.first import AgentLook, cast_of, first_look
from persona_pipeline.world.messages.files import parse_messages
from persona_pipeline.world.models import Message

LINES = PROJECT / "benchmarks" / "everyday"
START, TALK = datetime(2026, 1, 5, 9, tzinfo=UTC), 8
KINDS = ("assistant", "courtesies", "corporate")
LANGUAGES = sorted(path.stem for path in LINES.glob("*.yaml"))
Export = list[Message]


def known(language: str) -> dict[str, list[str]]:
    return yaml.safe_load((LINES / f"{language}.yaml").read_text(encoding="utf-8"))


def support(language: str, generator: random.Random, later: Sequence[str] = (), kept: int = 160) -> Export:
    """Return a support voice's messages, eight a conversation, its conversations shuffled; then what it says later."""
    voice = known(language)["voice"]
    talks = [voice[start : start + TALK] for start in range(0, len(voice), TALK)]
    generator.shuffle(talks)
    texts = [*[text for talk in talks for text in talk][:kept], *later]
    return [
        Message(
            f"{language}-{n}",
            language,
            text,
            START + timedelta(hours=3 * (n // TALK), minutes=n % TALK),
            f"{language}-{n // TALK}",
        )
        for n, text in enumerate(texts)
    ]


def together(*exports: Export) -> Export:
    return sorted((item for export in exports for item in export), key=lambda item: (item.created_at, item.id))


def look(export: Export) -> list[AgentLook]:
    return first_look(cast_of(export))


def stretches(said: Sequence[Message], size: int, runs: int, seed: int) -> Iterator[Export]:
    generator = random.Random(seed)
    for _ in range(runs):
        start = generator.randrange(len(said) - size)
        yield list(said[start : start + size])


def intact(runs: int) -> dict[str, Callable[[], Iterator[Export]]]:
    generator = random.Random(5)
    worlds: dict[str, Callable[[], Iterator[Export]]] = {
        "support, one alone": lambda: (
            support(name, generator) for name in LANGUAGES for _ in range(max(1, runs // 4))
        ),
        "support, three languages": lambda: (
            together(*(support(name, generator) for name in generator.sample(LANGUAGES, 3))) for _ in range(runs)
        ),
    }
    for genre in chats.GENRES:
        for own in (200, 800):
            worlds[f"{genre}, {own} of ann"] = lambda genre=genre, own=own: (
                chats.made(chats.GENRES[genre], 70_000 + own + run, own) for run in range(runs)
            )
    for size in (5000, 15_000):
        worlds[f"series, {size}"] = lambda size=size: stretches(chats.series(), size, runs, size)
        worlds[f"chat, {size}"] = lambda size=size: stretches(chats.chat(), size, runs, size)
    return worlds


def run_intact(runs: int, only: str) -> None:
    print("| export | exports | agents | told | exports with a finding | findings |\n|---|--:|--:|--:|--:|---|")
    all_false = all_runs = 0
    for name, exports in intact(runs).items():
        if only and only not in name:
            continue
        count = agents = told = false = 0
        kinds = Counter[str]()
        for export in exports():
            found = look(export)
            count += 1
            agents += len(found)
            told += sum(not item.untold for item in found)
            findings = [one for item in found for one in item.findings]
            false += bool(findings)
            kinds.update(one.kind for one in findings)
        low, high = binomtest(false, count).proportion_ci(method="wilson")
        shown = ", ".join(f"{kind} {n}" for kind, n in kinds.most_common()) or "none"
        print(f"| {name} | {count} | {agents} | {told} | {false} [{low:.1%}, {high:.1%}] | {shown} |", flush=True)
        all_false, all_runs = all_false + false, all_runs + count
    low, high = binomtest(all_false, all_runs).proportion_ci(method="wilson")
    print(f"| all | {all_runs} | | | {all_false} [{low:.1%}, {high:.1%}] | |")


def drifted(name: str, run: int) -> tuple[Export, str, str]:
    """Return an export, who changes in it, and the id of the first message that is not its own."""
    generator = random.Random(run)
    if name in chats.GENRES:
        export = chats.made(chats.GENRES[name], 90_000 + run, 200)
        own = [item for item in export if item.agent_id == "ann"]
        first = own[120]
        changed = [
            replace(item, agent_id="ann")
            if item.agent_id == "other0" and item.created_at > first.created_at
            else replace(item, agent_id="other0")
            if item.agent_id == "ann" and item.created_at > first.created_at
            else item
            for item in export
        ]
        began = next(item for item in changed if item.agent_id == "ann" and item.created_at > first.created_at)
        return changed, "ann", began.id
    language, kind = name.split()
    told = known(language)
    if kind == "half":
        stock = generator.sample([*told["courtesies"], *told["corporate"]], 20)
        own = generator.sample(told["voice"], 20)
        later = [text for pair in zip(own, stock, strict=True) for text in pair]
    else:
        later = generator.sample(told[kind], 40)
    others = [support(other, generator) for other in generator.sample([n for n in LANGUAGES if n != language], 2)]
    return together(support(language, generator, later, kept=96), *others), language, f"{language}-96"


def run_drift(runs: int, only: str) -> None:
    print(
        "| who changes | exports | found | messages off: median, most | spoken for by | others found |\n|---|--:|--:|--:|---|--:|"
    )
    for name in [*(f"{n} {kind}" for n in LANGUAGES for kind in (*KINDS, "half")), *chats.GENRES]:
        if only and only not in name:
            continue
        found, off, others, like = 0, list[int](), 0, Counter[str]()
        for run in range(runs):
            export, agent, first = drifted(name, run)
            places = {item.id: n for n, item in enumerate(item for item in export if item.agent_id == agent)}
            seen = {item.agent_id: item.findings for item in look(export)}
            found += bool(seen[agent])
            others += sum(bool(items) for name, items in seen.items() if name != agent)
            for item in seen[agent]:
                if item.since:
                    off.append(places[item.since[0]] - places[first])
                    like[item.text.partition(" sounds like ")[2].partition(":")[0] or "not itself"] += 1
        shown = f"{median(map(abs, off)):g}, {max(off, key=abs)}" if off else "–"
        said = ", ".join(f"{what} {n}" for what, n in like.most_common())
        print(f"| {name} | {runs} | {found} | {shown} | {said} | {others} |", flush=True)


def written(folder: Path, export: Export, form: str) -> Path:
    """Write an export in a format."""
    path = folder / f"{form}.jsonl"
    if form == "messages":
        rows = [
            {
                "id": m.id,
                "agent_id": m.agent_id,
                "channel": m.channel,
                "text": m.text,
                "created_at": m.created_at.isoformat(),
            }
            | ({"recipient": m.recipient} if m.channel is None else {})
            for m in export
        ]
        rows = [{key: value for key, value in row.items() if value is not None} for row in rows]
    elif form == "openai":
        talks: dict[str, list[Message]] = {}
        for m in export:
            talks.setdefault(m.conversation, []).append(m)
        rows = [
            {
                "id": talk.strip("#"),
                "messages": [
                    {"role": "assistant", "name": m.agent_id, "content": m.text, "created_at": m.created_at.isoformat()}
                    for m in said
                ],
            }
            for talk, said in talks.items()
        ]
    else:
        rows = [{"chat_metadata": {}, "user_name": "x", "character_name": "y"}]
        rows += [
            {"name": m.agent_id, "is_user": False, "mes": m.text, "send_date": m.created_at.isoformat()} for m in export
        ]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def command(folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], float, float]:
    """Return how the command ended, its seconds of the processor and MB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    ask = [sys.executable, "-m", "persona_pipeline", "try", *arguments]
    done = subprocess.run(ask, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done, seconds, after.ru_maxrss / 1024


def run_walk() -> None:
    said = [item for path in sorted((PROJECT / "messages").glob("*.jsonl")) for item in parse_messages(path).messages]
    export = sorted(said, key=lambda item: (item.created_at, item.id))
    with tempfile.TemporaryDirectory() as name:
        for form in ("messages", "openai", "sillytavern"):
            done, seconds, size = command(Path(name), str(written(Path(name), export, form)))
            print(f"{form}: exit {done.returncode}, {seconds:.1f} s of the processor, {size:.0f} MB")
            print(done.stdout.partition("\n\n")[0], done.stderr)


def run_speed() -> None:
    print("| messages | agents | seconds of the processor | seconds | MB | exit |\n|--:|--:|--:|--:|--:|--:|")
    for count, others in ((10_000, 3), (10_000, 49), (50_000, 9)):
        export = chats.made(chats.GENRES["tickets"], 3, count // 2, others)[:count]
        with tempfile.TemporaryDirectory() as name:
            path = written(Path(name), export, "messages")
            began = time.monotonic()
            done, seconds, size = command(Path(name), str(path), "--json")
        facts = json.loads(done.stdout)
        taken = time.monotonic() - began
        print(
            f"| {facts['messages']:,} | {len(facts['agents'])} | {seconds:.1f} | {taken:.1f} | {size:.0f} | {done.returncode} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("intact", "drift", "walk", "speed"))
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--only", default="", help="only what has this in its name")
    chosen = parser.parse_args()
    asked = {
        "intact": lambda: run_intact(chosen.runs, chosen.only),
        "drift": lambda: run_drift(chosen.runs, chosen.only),
        "walk": run_walk,
        "speed": run_speed,
    }
    asked[chosen.what]()


if __name__ == "__main__":
    main()
