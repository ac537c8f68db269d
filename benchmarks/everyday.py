"""How soon a support agent alone that turns into stock language is noticed, in ten languages, and how often it is for nothing.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/everyday.py [--draws 30]
     OPENBLAS_NUM_THREADS=1 python benchmarks/everyday.py people     speakers of public dialogue, downloaded, each alone

``benchmarks/everyday/<language>.yaml`` has one agent of a character of its own, in 20 conversations of 8 messages, with stock
language of three kinds, written by somebody who had not seen the everyday language of the package. A voice is learnt from
the first 10 or 15 conversations. Then comes the rest of its own, or 40 lines of a kind drawn at random; *half*: one of its own, one
of a support desk or a circular, in turn.

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

from persona_pipeline.scoring.voice_alarm.learning import learn_voice
from persona_pipeline.scoring.voice_alarm.model import VoiceModel, VoiceWatch
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
    watch, agent = VoiceWatch(model), model.provenance.agent_id
    for number, text in enumerate(texts, start=1):
        if watch.read(Message(str(number), agent, text, model.provenance.until + timedelta(minutes=number), "now"))[1]:
            return number
    return NEVER


def shown(found: list[int]) -> str:
    return f"{median(found):g} / {max(found)}"


def run_languages(draws: int) -> None:
    print(f"{draws} draws a cell\n")
    print(
        "| language | learnt from | own | " + " | ".join(KINDS) + " | half |\n|---|--:|--:|" + "--:|" * (len(KINDS) + 1)
    )
    for path in sorted(LINES.glob("*.yaml")):
        known, generator = yaml.safe_load(path.read_text(encoding="utf-8")), random.Random(1)
        for count in (80, 120):
            model = learn_voice("agent", messages(known["voice"][:count]))
            if model is None or not model.sides:
                print(f"| {path.stem} | {count} | cannot tell |" + " |" * (len(KINDS) + 1))
                continue
            left = known["voice"][count:]
            own = "none" if alarm(model, left) == NEVER else "**alarm**"
            cells = [shown([alarm(model, generator.sample(known[kind], 40)) for _ in range(draws)]) for kind in KINDS]
            stock, halves = [*known["courtesies"], *known["corporate"]], []
            for _ in range(draws):
                pairs = zip(generator.sample(left, len(left)), generator.sample(stock, len(left)), strict=True)
                halves.append(alarm(model, [text for pair in pairs for text in pair]))
            print(
                f"| {path.stem} | {count} | {len(left)}: {own} | " + " | ".join([*cells, shown(halves)]) + " |",
                flush=True,
            )


def run_people() -> None:
    """Print how often speakers of a series, each alone, raise an alarm in their next 500 lines, and how soon stock lines do."""
    import dialogue
    from scipy.stats import binomtest

    known, generator = yaml.safe_load((LINES / "en.yaml").read_text(encoding="utf-8")), random.Random(2)
    names = dialogue.speakers()
    said = dialogue.as_messages([line for line in dialogue.lines() if line.speaker in names and line.text.strip()])
    print(
        "| learnt from | followed | false alarms in 500 | "
        + " | ".join(KINDS)
        + " |\n|--:|--:|--:|"
        + "--:|" * len(KINDS)
    )
    for count in (150, 400, 1000):
        tries, false, found = 0, 0, {kind: list[int]() for kind in KINDS}
        stretches = 0
        for name in names[:10]:
            own = [message for message in said if message.agent_id == name]
            for start in range(0, len(own) - count - 500, 500):
                stretches += 1
                model = learn_voice(name, own[start : start + count])
                if model is None or not model.sides:
                    continue
                tries += 1
                false += alarm(model, [item.text for item in own[start + count : start + count + 500]]) != NEVER
                for kind in KINDS:
                    found[kind].append(alarm(model, generator.sample(known[kind], 40)))
        low, high = binomtest(false, tries).proportion_ci(method="wilson")
        cells = " | ".join(shown(own) for own in found.values())
        print(f"| {count} | {tries} of {stretches} | {false} [{low:.1%}, {high:.1%}] | {cells} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("languages", "people"), default="languages")
    parser.add_argument("--draws", type=int, default=30)
    chosen = parser.parse_args()
    run_people() if chosen.what == "people" else run_languages(chosen.draws)


if __name__ == "__main__":
    main()
