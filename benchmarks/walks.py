"""The product as three new users meet it: commands that are really run, where it is known who broke character when.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/walks.py helpdesk|play|fleet [--runs 5] [--seed 1] [--share 0.33]

The judge is a stand-in behind a local HTTP server. It knows which texts are out of character, misreads 5 % of the texts (each the
same way every time), and scores claims by the share that it reads as out.

helpdesk  a CSV of 150 messages in 25 conversations of six weeks. A bot says stock phrases from a Tuesday of the fourth or fifth
          week on. ``try``, a persona, ``evaluate``, ``since``, the baseline that is printed, and in a clone, without a key, the
          job of CI: exit codes, and by how many messages of the bot the dates are off
play      36 chats of SillyTavern, --share of whose 288 messages are out of character in the mean, as some break in the middle:
          precision and recall of ``report --by message``
fleet     50 agents in Postgres, about 100 messages each in five weeks. Three drift from a day of the newest two weeks on: who has
          the verdict *drifted*, and by how many days the dates are off
"""

import argparse
import io
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import chats
import pandas as pd
import yaml
from first_finding import LANGUAGES, known
from message_share import rate

from persona_pipeline.world.world import template_world
from tests.support.messages_replies import verdicts
from tests.support.messages_server import Call, MessagesServer, Reply, message
from tests.support.postgres import fresh_database, postgres_server

COLUMNS = ("Ticket ID", "Comment ID", "Author Name", "Body", "Created")
MAPPED = "--map 'Ticket ID=channel' --map 'Comment ID=id' --map 'Author Name=agent_id' --map Body=text --map Created=created_at"
LIVE = "--samples 3 --judge anthropic --record"
STOCK = {*tomllib.loads((ROOT / "persona_pipeline/guard/data/stock.toml").read_text("utf-8"))["lines"]}
ERROR, MONDAY = 0.05, datetime(2026, 4, 27, 9, tzinfo=UTC)
# What the claims of a new world in each language say that should not happen, without the names that are filled in.
INVERTED = [
    max(re.split(r"{{\w+}}", claim["claim"]), key=len)
    for language in LANGUAGES
    for path, text in template_world(language).items()
    if path.startswith("propositions/")
    for claim in yaml.safe_load(text)["propositions"]
    if claim.get("inverted")
]


class Reader:
    """Answers for a judge; ``out`` has every text that is out of character."""

    def __init__(self, seed: int) -> None:
        self.seed, self.out = seed, set[str]()

    def is_out(self, text: str, *, is_stock: bool = False) -> bool:
        """``is_stock``: said under the name of the character that the check of the judge makes up."""
        return (is_stock != (text in STOCK) or text in self.out) != (
            random.Random(f"{self.seed} {text}").random() < ERROR
        )

    def __call__(self, call: Call) -> Reply:
        question = call.body["messages"][-1]["content"][0]["text"]
        shown = [one for item in json.loads(call.evidence) for one in item.get("entries", [item]) if "text" in one]
        if question.startswith("Give a verdict on each"):
            found = {entry["id"]: entry["text"] for entry in shown if "id" in entry}
            is_stock = "Odd Hansen" in json.dumps(call.body)
            out = [name for name, text in found.items() if self.is_out(text, is_stock=is_stock)]
            why = [{"id": n, "claims": ["c1"], "quote": found[n][:60], "reason": "A stock phrase."} for n in out]
            told = [{"id": name, "verdict": "out" if name in out else "in"} for name in found]
            return message(json.dumps({"verdicts": told, "why": why}), model=call.body["model"])
        share = sum(self.is_out(entry["text"]) for entry in shown) / max(1, len(shown))
        answer = verdicts(call.body, lambda claim: round(9 * abs(share - all(part not in claim for part in INVERTED))))
        return message(json.dumps(answer), model=call.body["model"])


class Walk:
    """Commands of a user in a folder, with their exit codes."""

    def __init__(self, folder: Path, url: str, **environment: str) -> None:
        self.folder, self.codes = folder, dict[str, int]()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.ci = {**os.environ, "PATH": path, "COLUMNS": "100", **environment}
        self.live = {**self.ci, "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "test"}

    def run(self, name: str, command: str, *, is_ci: bool = False) -> subprocess.CompletedProcess[str]:
        how = {"cwd": self.folder, "env": self.ci if is_ci else self.live, "capture_output": True, "text": True}
        done = subprocess.run(shlex.split(command), **how, check=False)
        self.codes[name] = done.returncode
        return done

    def persona(self, agent_id: str, name: str) -> None:
        text = f"display_name: {name}\naliases: [{name}]\npersona: {name} is dry and never says a stock phrase.\n"
        (self.folder / f"personas/{agent_id}.yaml").write_text(text, encoding="utf-8")


def dates(text: str) -> list[datetime]:
    """Return the dates that sentences say an agent has been out of character since."""
    found = re.findall(r"out of character since (\S+ \S+) UTC", text)
    return [datetime.fromisoformat(item).replace(tzinfo=UTC) for item in found]


def tickets(path: Path, reader: Reader, seed: int) -> tuple[list[datetime], int]:
    """Write a helpdesk's export; return when each message of its bot was said, and the number of the first that is out."""
    dice, said = random.Random(seed), known(LANGUAGES[seed % len(LANGUAGES)])
    own, stock = dice.sample(said["voice"], 75), dice.sample(said["courtesies"] + said["assistant"], 75)
    tuesday = MONDAY.replace(hour=0) + timedelta(weeks=3 + seed % 2, days=1)
    rows, times = list[tuple[Any, ...]](), list[datetime]()
    for ticket in range(25):
        opened = MONDAY + timedelta(days=42 * ticket / 25, hours=5 * dice.random())
        for turn in range(6):
            at, text = opened + timedelta(minutes=7 * turn), f"{dice.choice(said['normal'])} ({ticket}, {turn})"
            if turn % 2:
                times.append(at.replace(second=0, microsecond=0))
                text = (stock if at >= tuesday else own).pop()
                reader.out |= {text} if at >= tuesday else set()
            who = "Edith" if turn % 2 else f"customer {ticket}"
            rows.append((4100 + ticket, len(rows), who, text, f"{at:%Y-%m-%d %H:%M:%S}"))
    pd.DataFrame(rows, columns=list(COLUMNS)).to_csv(path, index=False)
    return times, sum(at < tuesday for at in times)


def helpdesk(seed: int, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    reader = Reader(seed)
    times, first = tickets(folder / "tickets.csv", reader, seed)
    with MessagesServer(reader) as server:
        walk = Walk(folder, server.url)
        tried = json.loads(walk.run("try", f"persona-pipeline try tickets.csv {MAPPED} --json").stdout)
        findings = [finding["since"] for agent in tried["agents"] for finding in agent["findings"] if finding["since"]]
        first_look = [datetime.fromisoformat(time) for _, time in findings]
        walk.folder = folder / "tickets-world"
        walk.persona("edith", "Edith")
        (walk.folder / "persona.yaml").write_text("samples: 3\n")
        walk.run("evaluate", f"persona-pipeline evaluate {LIVE}")
        since = walk.run("since", f"persona-pipeline since {tried['since']} --window all {LIVE}")
        command = (
            "".join(tried["baselines"]) or f"persona-pipeline baseline --as-of {tried['since']} --windows 4 {LIVE}"
        )
        while (done := walk.run("baseline", command)).returncode == 3:
            command = re.findall("take the windows before it: `([^`]+)`", done.stderr)[0]
        walk.run("evaluate again", f"persona-pipeline evaluate {LIVE}")
        walk.run("clone", "sh -c 'mkdir ../clone && cp -r [!.]* ../clone'")
    walk.folder = folder / "clone"
    job = walk.run("CI", "dagster job execute -m persona_pipeline.definitions -j persona_regression", is_ci=True)
    said = {"try": first_look, "since": dates(since.stdout), "CI": dates(job.stdout + job.stderr)}
    off = {name: sum(at < item[0].replace(second=0) for at in times) - first for name, item in said.items() if item}
    return {"exit codes": walk.codes, "messages off": off}


def chats_of(folder: Path, reader: Reader, seed: int, share: float) -> None:
    """Write 36 chats of SillyTavern. A chat that breaks does so before its second to eighth message, half of it in the mean."""
    folder.mkdir()
    dice, said = random.Random(seed), known("en")
    stock = said["courtesies"] + said["assistant"] + said["corporate"]
    for chat in range(36):
        opened = MONDAY + timedelta(days=chat, minutes=dice.randrange(200))
        breaks = dice.randrange(1, 8) if dice.random() < 2 * share else 8
        rows: list[dict[str, Any]] = [{"user_name": "Jo", "character_name": "Maren", "chat_metadata": {}}]
        for turn in range(16):
            place, is_user = turn // 2, turn % 2 == 1
            lines = said["normal"] if is_user else said["voice"] if place < breaks else stock
            text = f"{dice.choice(lines)} ({chat}, {turn})"
            reader.out |= {text} if not is_user and place >= breaks else set()
            at = f"{opened + timedelta(minutes=turn):%Y-%m-%d@%Hh%Mm%Ss}"
            rows.append({"name": "Jo" if is_user else "Maren", "is_user": is_user, "send_date": at, "mes": text})
        text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        (folder / f"Maren - {opened:%Y-%m-%d@%Hh%Mm%Ss}.jsonl").write_text(text, encoding="utf-8")


def play(seed: int, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    reader = Reader(seed)
    chats_of(folder / "chats", reader, seed, chosen.share)
    with MessagesServer(reader) as server:
        walk = Walk(folder, server.url)
        walk.run("try", "persona-pipeline try chats")
        walk.folder = folder / "chats-world"
        walk.persona("maren", "Maren")
        walk.run("evaluate", "persona-pipeline evaluate --judge anthropic --record --window all")
        listed = walk.run("report", "persona-pipeline report --format csv --by message").stdout
    said = pd.read_json(walk.folder / "messages/imported.jsonl", lines=True)
    broken = {*said[said["text"].isin(list(reader.out))]["id"]}
    out = {*pd.read_csv(io.StringIO(listed)).query("verdict == 'out'")["message_id"]}
    return {"exit codes": walk.codes, "broken": len(broken), "listed": len(out), "rightly": len(out & broken)}


def agents_of(walk: Walk, reader: Reader, seed: int) -> dict[str, datetime]:
    """Write 50 agents and their messages of five weeks; return when each of three began to drift."""
    dice, rows, began = random.Random(seed), list[dict[str, Any]](), dict[str, datetime]()
    days = {f"agent{number}": MONDAY + timedelta(days=22 + dice.randrange(9)) for number in dice.sample(range(50), 3)}
    stock = known("en")["courtesies"] + known("en")["assistant"]
    for place in range(50):
        name = f"agent{place}"
        walk.persona(name, name.title())
        said = chats.made(1000 * seed + place, 100, 1)
        for start in range(0, len(said), 6):
            opened = MONDAY + timedelta(days=35 * start / len(said), minutes=place)
            for item in said[start : start + 6]:
                at, text = opened + (item.created_at - said[start].created_at), item.text
                is_own = item.agent_id == "ann"
                if is_own and name in days and at >= days[name]:
                    began.setdefault(name, at)
                    text = f"{dice.choice(stock)} ({len(rows)})"
                    reader.out.add(text)
                who = {"id": f"{name} {item.id}", "agent_id": name if is_own else f"guest of {name}"}
                rows.append({**who, "channel": f"{name} {start}", "text": text, "created_at": at.isoformat()})
    (walk.folder / "export.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return began


def fleet(seed: int, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    reader = Reader(seed)
    with postgres_server(folder / "sql") as sql, fresh_database(sql) as url, MessagesServer(reader) as server:
        # The stand-in knows texts, and not which of two agents could have said one: the check of the judge is not for it.
        settings = {"PERSONA_JUDGE_GROUPING": "9", "PERSONA_ANCHORS": "0"}
        walk = Walk(folder, server.url, PERSONA_DATABASE_URL=url, **settings)
        walk.run("init", "sh -c 'persona-pipeline init world && cd world && rm personas/* messages/* */*/[!_]*'")
        walk.folder = folder / "world"
        began = agents_of(walk, reader, seed)
        walk.run("ingest", "persona-pipeline ingest export.jsonl")
        walk.run("baseline", "persona-pipeline baseline --as-of 2026-05-18T09:00:00Z --windows 3 --judge anthropic")
        agents = json.loads(walk.run("evaluate", "persona-pipeline evaluate --judge anthropic").stdout)["agents"]
    named = {name for name, item in agents.items() if item["conclusion"]["verdict"] == "fell"}
    found = {name: dates(json.dumps(agents[name]["findings"], ensure_ascii=False)) for name in named & began.keys()}
    off = {name: (item[0] - began[name]) / timedelta(days=1) if item else None for name, item in found.items()}
    return {"exit codes": walk.codes, "named": len(found), "falsely": sorted(named - began.keys()), "days off": off}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    walks = {"helpdesk": helpdesk, "play": play, "fleet": fleet}
    parser.add_argument("walk", choices=walks)
    for name, default in (("--runs", 5), ("--seed", 1), ("--share", 0.33)):
        parser.add_argument(name, type=type(default), default=default)
    chosen, totals = parser.parse_args(), Counter[str]()
    for seed in range(chosen.seed, chosen.seed + chosen.runs):
        with tempfile.TemporaryDirectory() as folder:
            found = walks[chosen.walk](seed, Path(folder), chosen)
        totals.update({name: value for name, value in found.items() if isinstance(value, int)})
        print(f"| {seed} | " + " | ".join(f"{name}: {value}" for name, value in found.items()) + " |", flush=True)
    if chosen.walk == "play":
        shares = (f"{rate(totals['rightly'], totals[of])} of {totals[of]}" for of in ("listed", "broken"))
        print("precision, recall:", *shares)


if __name__ == "__main__":
    main()
