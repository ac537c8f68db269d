"""How soon a support agent alone that turns into stock language is noticed, in ten languages, and how often it is for nothing.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/everyday.py [--draws 30]
     OPENBLAS_NUM_THREADS=1 python benchmarks/everyday.py people     speakers of public dialogue, downloaded, each alone
     OPENBLAS_NUM_THREADS=1 python benchmarks/everyday.py own        false alarms, with the conversations parted at random
     OPENBLAS_NUM_THREADS=1 python benchmarks/everyday.py walk       what the commands say of four support voices

``benchmarks/everyday/<language>.yaml`` has one agent of a character of its own, in 20 conversations of 8 messages, with stock
language of three kinds, written by somebody who had not seen the everyday language of the package. A voice is learnt from the first
12 or all 20 conversations. Then come 40 of its own, or 40 lines of a kind drawn at random; *half*: one of its own, one of a support
desk or a circular, in turn.

    own       messages of its own that were left, and whether they raised an alarm
    a / b     messages until the alarm, median and most of the draws; 99: none

**own**: learnt from twelve conversations drawn at random of the twenty, and the others drawn one after another to 500 messages.

**walk**: the voices of de, ja, en and ar, each alone in a world and all four in one, a channel a conversation: 120 messages of
their own, and a month later 20, 60 or 200 courtesies of their language, or 40 more of their own. ``watch``, ``evaluate`` and its
report say what they say; nobody is judged.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import yaml

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.scoring.style.model import VoiceModel, learn_voice
from persona_pipeline.scoring.style.monitor import follow_voice
from persona_pipeline.testing.worlds import WorldBuilder
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
                if model is None or not model.limits:
                    continue
                tries += 1
                false += alarm(model, [item.text for item in own[start + count : start + count + 500]]) != NEVER
                for kind in KINDS:
                    found[kind].append(alarm(model, generator.sample(known[kind], 40)))
        low, high = binomtest(false, tries).proportion_ci(method="wilson")
        cells = " | ".join(shown(own) for own in found.values())
        print(f"| {count} | {tries} of {stretches} | {false} [{low:.1%}, {high:.1%}] | {cells} |", flush=True)


def run_own(draws: int) -> None:
    """Print in how many stretches of 500 own messages there was an alarm, and how many partings of the conversations had none."""
    from scipy.stats import binomtest

    print("| language | partings followed | stretches of 500 with an alarm |\n|---|--:|--:|")
    all_false = all_tries = 0
    for path in sorted(LINES.glob("*.yaml")):
        voice, generator = yaml.safe_load(path.read_text(encoding="utf-8"))["voice"], random.Random(3)
        talks = [voice[start : start + TALK] for start in range(0, len(voice), TALK)]
        followed, false, tries = 0, 0, 0
        for _ in range(draws):
            generator.shuffle(talks)
            model = learn_voice("agent", messages([text for talk in talks[:12] for text in talk]))
            if model is None or not model.limits:
                continue
            followed += 1
            for _ in range(5):
                drawn = [text for _ in range(8) for talk in generator.sample(talks[12:], 8) for text in talk][:500]
                tries, false = tries + 1, false + (alarm(model, drawn) != NEVER)
        print(f"| {path.stem} | {followed} of {draws} | {false} of {tries} |", flush=True)
        all_false, all_tries = all_false + false, all_tries + tries
    low, high = binomtest(all_false, all_tries).proportion_ci(method="wilson")
    print(f"| all | | {all_false} of {all_tries} [{low:.1%}, {high:.1%}] |", flush=True)


WALKED, KNOWN, MONTH = ("de", "ja", "en", "ar"), 120, timedelta(days=30)


def support_world(root: Path, said: Mapping[str, Sequence[str]]) -> None:
    """Write a world of support voices by language, each with what it says after the messages that are known of it."""
    builder = WorldBuilder(root)
    for language, later in said.items():
        known = yaml.safe_load((LINES / f"{language}.yaml").read_text(encoding="utf-8"))
        builder.persona(language, f"Answers customers of a small shop, in {language}, in a manner of its own.")
        for n, item in enumerate([*messages(known["voice"][:KNOWN]), *messages(list(later))]):
            moment = item.created_at + (MONTH if n >= KNOWN else timedelta())
            ticket = f"{language}-{'later' if n >= KNOWN else 'first'}-{item.channel}".replace(" ", "-")
            builder.say(language, item.text, at=moment.isoformat().replace("+00:00", "Z"), channel=ticket)


def command(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PERSONA_ROOT": str(root)}
    ask = [sys.executable, "-m", "persona_pipeline", *arguments]
    return subprocess.run(ask, cwd=root, env=environment, capture_output=True, text=True, check=False)


def run_walk() -> None:
    since = (START + MONTH - timedelta(days=1)).isoformat()
    evaluate = (
        "evaluate",
        "--since",
        since,
        "--format",
        "markdown",
        "--output",
        "report.md",
    )
    print("| world | said | watch: exit, alarms | `evaluate` exit | with `--fail-on voice_alarm` | the report says |")
    print("|---|---|---|--:|--:|---|")
    for languages in (*((language,) for language in WALKED), WALKED):
        for count in (0, 20, 60, 200):
            generator, later = random.Random(4), dict[str, list[str]]()
            for language in languages:
                known = yaml.safe_load((LINES / f"{language}.yaml").read_text(encoding="utf-8"))
                later[language] = generator.choices(known["courtesies"], k=count) if count else known["voice"][KNOWN:]
            with tempfile.TemporaryDirectory() as folder:
                root = Path(folder)
                support_world(root, later)
                watch = command(root, "watch", "--once", "--since", since)
                plain, failing = command(root, *evaluate), command(root, *evaluate, "--fail-on", "voice_alarm")
                report = (root / "report.md").read_text(encoding="utf-8") if (root / "report.md").exists() else "none"
            like = r"(\w+) has not sounded like itself.*?(?:reads like ([^;]+); |; )noticed at .*? after (\d+)"
            heard = "; ".join(
                f"{name} after {after}, {kind or 'nobody'}" for name, kind, after in re.findall(like, watch.stdout)
            )
            in_report = sorted({name for name, _, _ in re.findall(like, report)})
            said = f"{count} courtesies" if count else "40 of its own"
            print(
                f"| {', '.join(languages)} | {said} | {watch.returncode}: {heard or 'none'} | {plain.returncode} "
                f"| {failing.returncode} | {', '.join(in_report) or 'nothing'} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("languages", "people", "own", "walk"), default="languages")
    parser.add_argument("--draws", type=int, default=30)
    chosen = parser.parse_args()
    asked = {
        "languages": lambda: run_languages(chosen.draws),
        "people": run_people,
        "own": lambda: run_own(chosen.draws),
        "walk": run_walk,
    }
    asked[chosen.what]()


if __name__ == "__main__":
    main()
