"""Does ``bisect`` name what made a score fall? ``python benchmarks/bisect_histories.py [--histories 300]``.

Each history is a git repository of its own: an agent with a persona, claims and messages, judged in every commit by a stand-in
whose verdicts are recorded, as CI keeps them. Somewhere one thing makes scores fall: a line of the persona, a claim, the judge's
model, or messages. Around it stand commits that change other things and no score: other lines, claims, agents, files, single
messages. In some histories another thing changes in the very same commit:

    harmless    another claim, another agent, a file that no judge sees: the cause can be told
    together    messages or the persona beside the cause, judged only together: it cannot, and that must be said

Named rightly is: the commit, the kind of cause, and which line, claim, model or message. No judge is asked.
"""

import argparse
import random
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml

from persona_pipeline.evaluation.verdicts import KnownVerdicts
from persona_pipeline.judging.recordings.replay import RecordingWriter
from persona_pipeline.judging.verdict import Evidence, JudgeRequest, Verdict
from persona_pipeline.propositions import ALL_DIMENSIONS
from persona_pipeline.versions.bisecting import BisectRequest, bisect_commits
from persona_pipeline.versions.finding import Bisection, Kind
from persona_pipeline.versions.sides import Side
from persona_pipeline.versions.states import Answers, state_of
from persona_pipeline.world import World
from persona_pipeline.world.folder import FolderWorld
from persona_pipeline.world.models import Window

AGENT, START = "ann", datetime(2026, 3, 2, 9, tzinfo=UTC)
CAUSES = (Kind.PERSONA, Kind.CLAIMS, Kind.JUDGE, Kind.MESSAGES)
BESIDE = ("", "harmless", "together")


@dataclass
class History:
    """A repository that grows commit by commit."""

    root: Path
    rng: random.Random
    persona: list[str] = field(default_factory=list)
    claims: dict[str, dict] = field(default_factory=dict)
    said: list[dict] = field(default_factory=list)
    model: str = "judge-1"
    salt: int = 0
    commits: int = 0
    planted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.git("init", "-q", "-b", "main")
        self.persona = [f"Ann cares about thing {number}." for number in range(8)]
        for number in range(self.rng.randint(4, 7)):
            self.claims[f"c{number}"] = {"claim": f"{{{{agent_name}}}} shows habit {number}"}
        for number in range(12):
            self.say(f"Plain line {number}.")

    def git(self, *arguments: str) -> str:
        """Run git in the repository."""
        moment = (START + timedelta(days=self.commits)).isoformat()
        environment = {
            "HOME": str(self.root), "PATH": "/usr/bin:/bin:/usr/local/bin", "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment,
        }  # fmt: skip
        command = ["git", "-C", str(self.root), "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()

    def say(self, text: str) -> str:
        """Add a message of the agent."""
        name = f"m{len(self.said)}"
        at = START + timedelta(minutes=len(self.said))
        self.said.append(
            {"id": name, "agent_id": AGENT, "channel": "general", "text": text, "created_at": at.isoformat()}
        )
        return name

    def write(self) -> None:
        """Write the world's files."""
        files = {
            f"personas/{AGENT}.yaml": "display_name: Ann\npersona: |\n"
            + "".join(f"  {line}\n" for line in self.persona),
            "personas/bob.yaml": f"display_name: Bob\npersona: Bob {self.salt}\n",
            "propositions/adherence/_default.yaml": yaml.safe_dump(
                {"dimension": "adherence", "propositions": [{"id": key, **item} for key, item in self.claims.items()]}
            ),
            "messages/all.jsonl": "".join(f"{_json(row)}\n" for row in self.said),
            "README.md": f"Version {self.salt}\n",
        }
        for path, text in files.items():
            place = self.root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")

    def record(self) -> None:
        """Record what the judge says of the world as it stands; what is not asked any more goes."""
        source, side = FolderWorld(self.root), Side("", self.root)
        newest = source.newest_message_time()
        assert newest is not None
        answers = Answers(KnownVerdicts(self.root, None))
        state = state_of(source, side.agent(AGENT, ALL_DIMENSIONS), Window(newest), answers)
        assert state.plan is not None
        folder = self.root / "recordings"
        for path in folder.rglob("*.jsonl") if folder.is_dir() else ():
            path.unlink()
        requests = state.plan.requests
        RecordingWriter(folder).record(requests, [self.verdict(item) for item in requests], recorded_at=START)

    def verdict(self, request: JudgeRequest) -> Verdict:
        """Return what a judge says: about 8, and about 4 where it sees what is planted."""
        quotes = [entry for entry in request.trajectory.entries if "FOREIGN" in entry.text]
        seen = (
            "FORGETS" in (request.persona or "") or "IMPOSSIBLE" in request.claim or quotes or self.model == "judge-2"
        )
        noise = random.Random(f"{request.key}{self.model}").choice((-1, 0, 0, 0, 1))
        evidence = tuple(Evidence(entry.message_id, entry.text, verified=True) for entry in quotes[:2])
        return Verdict(
            request.proposition_id, score=max(0, (3 if seen else 8) + noise), reasoning="So it seems.", evidence=evidence,
            model=self.model, prompt_version="p1",
        )  # fmt: skip

    def commit(self, subject: str) -> str:
        """Commit the world and what is recorded of it."""
        self.write()
        self.record()
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        self.commits += 1
        return self.git("rev-parse", "HEAD")

    def harmless(self, *, without: Kind | None = None) -> str:
        """Change something that moves no score, of another kind than one."""
        self.salt += 1
        kinds = [kind for kind in ("persona", "claim", "message", "other") if kind != without]
        kind = self.rng.choice(kinds)
        if kind == "persona":
            self.persona[self.rng.randrange(4)] = f"Ann cares about thing {self.salt} now."
        elif kind == "claim":
            key = self.rng.choice([name for name in self.claims if name not in self.planted])
            self.claims[key] = {"claim": f"{{{{agent_name}}}} shows habit {self.salt} of late"}
        elif kind == "message":
            self.say(f"Another plain line {self.salt}.")
        return f"Change {kind} {self.salt}"


def _json(row: dict) -> str:
    import json

    return json.dumps(row)


@dataclass(frozen=True)
class Planted:
    """What was done, and what must be named."""

    kind: Kind
    commit: str
    names: tuple[str, ...]
    beside: str
    tellable: bool = True


def plant(history: History, kind: Kind, beside: str) -> Planted:
    """Let a score fall by one thing, with something else beside it."""
    names: tuple[str, ...]
    subject = "Tidy up"
    if kind is Kind.PERSONA:
        line = history.rng.randrange(4, 8)
        history.persona[line] = "Ann FORGETS who she is."
        names = (f"personas/{AGENT}.yaml:{line + 3}",)
    elif kind is Kind.CLAIMS:
        chosen = history.rng.sample(list(history.claims), 3)
        history.planted |= set(chosen)
        for key in chosen:
            history.claims[key] = {"claim": f"{{{{agent_name}}}} does the IMPOSSIBLE {key}"}
        names = tuple(f"adherence/{key}" for key in chosen)
    elif kind is Kind.JUDGE:
        history.model = "judge-2"
        names = ("judge-1 became judge-2",)
    else:
        names = tuple(history.say(f"A FOREIGN line {number}.") for number in range(3))
    if beside == "harmless":
        history.salt += 1
        if kind is Kind.CLAIMS:
            key = next(key for key in history.claims if f"adherence/{key}" not in names)
            history.claims[key] = {"claim": f"{{{{agent_name}}}} shows habit {history.salt} again"}
    elif beside == "together":
        other = Kind.MESSAGES if kind in (Kind.PERSONA, Kind.CLAIMS) else Kind.PERSONA
        if other is Kind.MESSAGES:
            history.say("A plain line beside it.")
        else:
            history.persona[0] = "Ann cares about tea."
    return Planted(kind, history.commit(subject), names, beside, beside != "together")


def generate(root: Path, seed: int, most: int = 8) -> tuple[Planted, int]:
    """Make a history and return what was planted in it, and how many commits it has."""
    rng = random.Random(seed)
    history = History(root, rng)
    history.commit("Begin")
    kind = CAUSES[seed % len(CAUSES)]
    beside = BESIDE[seed // len(CAUSES) % len(BESIDE)]
    for _ in range(rng.randint(1, most)):
        history.commit(history.harmless())
    planted = plant(history, kind, beside)
    for _ in range(rng.randint(1, most)):
        history.commit(history.harmless())
    return planted, history.commits


def judged(found: Bisection, planted: Planted) -> str:
    """Return how right the answer is, in a word."""
    if not found.falls:
        return "no fall seen"
    fall = found.falls[0]
    if fall.first_bad is None or fall.first_bad.commit != planted.commit:
        return "another commit"
    if not planted.tellable:
        if fall.cause is not None:
            return "named" if _right(fall.cause.kind, fall.cause.what, planted) else "wrongly named"
        return (
            "said that it cannot be told"
            if planted.kind in fall.candidates
            else "cannot tell, cause not among the candidates"
        )
    if fall.cause is None:
        return f"cannot tell: {fall.why_not}"
    return (
        "named"
        if _right(fall.cause.kind, fall.cause.what, planted)
        else f"wrongly named: {fall.cause.kind} {fall.cause.what}"
    )


def _right(kind: Kind, what: tuple[str, ...], planted: Planted) -> bool:
    # The judge quotes two of the messages, and those are named.
    names = set(what) <= set(planted.names) if kind is Kind.MESSAGES else set(what) == set(planted.names)
    return kind is planted.kind and bool(what) and names


def main() -> None:
    """Generate histories, search them, and count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--histories", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", action="store_true")
    told = parser.parse_args()
    results: Counter[tuple[str, str, str]] = Counter()
    calls = looked = commits = 0
    for seed in range(told.first, told.first + told.histories):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            planted, count = generate(root, seed)
            found, _ = bisect_commits(World.open(root), BisectRequest(AGENT, window="all"))
            answer = judged(found, planted)
            results[planted.kind.value, planted.beside or "alone", answer] += 1
            calls, looked, commits = calls + found.calls, looked + found.looked_at, commits + count
            if told.show and answer != "named":
                print(seed, planted, found.model_dump_json(indent=1))
    for (kind, beside, answer), count in sorted(results.items()):
        print(f"{kind:9} {beside:9} {count:4}  {answer}")
    tellable = sum(count for (_, beside, _), count in results.items() if beside != "together")
    right = sum(count for (_, beside, answer), count in results.items() if beside != "together" and answer == "named")
    both = [(answer, count) for (_, beside, answer), count in results.items() if beside == "together"]
    honest = sum(count for answer, count in both if answer in ("named", "said that it cannot be told"))
    unknown = sum(count for _, count in both)
    print(f"named where it can be told: {right} of {tellable}")
    print(f"where it cannot: right, or said to be unknown with the cause among the candidates: {honest} of {unknown}")
    print(
        f"calls {calls}; {looked / told.histories:.1f} points scored a history of {commits / told.histories:.1f} commits"
    )


if __name__ == "__main__":
    main()
