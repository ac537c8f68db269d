"""How soon a support agent alone that turns into stock language is noticed, in ten languages, and how often it is for nothing.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/everyday.py [--draws 30]

``benchmarks/everyday/<language>.yaml`` has one agent of a character of its own, in 20 conversations of 8 messages, with stock
language of three kinds, written by somebody who had not seen the everyday language of the package. A voice is learnt from the first
12 or all 20 conversations. Then come 40 of its own, or 40 lines of a kind drawn at random; *half*: one of its own, one of a support
desk or a circular, in turn.

    own       messages of its own that were left, and whether they raised an alarm
    a / b     messages until the alarm, median and most of the draws; 99: none
"""

import argparse
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import yaml

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.scoring.style.model import VoiceModel, learn_voice
from persona_pipeline.scoring.style.monitor import follow_voice
from persona_pipeline.world.models import Message

LINES = Path(__file__).parent / "everyday"
START, TALK, NEVER = datetime(2026, 1, 5, 9, tzinfo=UTC), 8, 99
KINDS = ("assistant", "courtesies", "corporate")


def messages(texts: list[str]) -> list[Message]:
    """Return one agent's messages, eight a conversation, a conversation every three hours."""
    return [
        Message(
            f"m{n}", "agent", text, START + timedelta(hours=3 * (n // TALK), minutes=n % TALK), f"ticket {n // TALK}"
        )
        for n, text in enumerate(texts)
    ]


def alarm(model: VoiceModel, texts: list[str]) -> int:
    """Return after how many messages there is an alarm; 99: none."""
    agent, until = model.provenance.agent_id, model.provenance.until
    said = [Message(str(n), agent, text, until + timedelta(minutes=n), "now") for n, text in enumerate(texts, start=1)]
    _, alarms = follow_voice(model, said)
    return int(alarms[0].raised_at.id) if alarms else NEVER


def shown(found: list[int]) -> str:
    return f"{median(found):g} / {max(found)}"


def run_languages(draws: int) -> None:
    print(f"{draws} draws a cell\n")
    print(
        "| language | learnt from | own | " + " | ".join(KINDS) + " | half |\n|---|--:|--:|" + "--:|" * (len(KINDS) + 1)
    )
    for path in sorted(LINES.glob("*.yaml")):
        known, generator = yaml.safe_load(path.read_text(encoding="utf-8")), random.Random(1)
        for count in (96, 160):
            model = learn_voice("agent", messages(known["voice"][:count]))
            if model is None or not model.limits:
                print(f"| {path.stem} | {count} | cannot tell |" + " |" * (len(KINDS) + 1))
                continue
            left = (known["voice"][count:] or known["voice"])[:40]
            # Where all was learnt nothing is left that it has not seen.
            own = "–" if count >= len(known["voice"]) else "none" if alarm(model, left) == NEVER else "**alarm**"
            cells = [shown([alarm(model, generator.sample(known[kind], 40)) for _ in range(draws)]) for kind in KINDS]
            stock, halves = [*known["courtesies"], *known["corporate"]], []
            for _ in range(draws):
                pairs = zip(generator.sample(left, len(left)), generator.sample(stock, len(left)), strict=True)
                halves.append(alarm(model, [text for pair in pairs for text in pair]))
            print(
                f"| {path.stem} | {count} | {len(left)}: {own} | " + " | ".join([*cells, shown(halves)]) + " |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=30)
    run_languages(parser.parse_args().draws)


if __name__ == "__main__":
    main()
