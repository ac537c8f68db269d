"""Does an interview say that a character is broken, and only then? ``python benchmarks/interview.py [--runs 200] [--worlds ...]``.

A target is a function that plays a character, with a fault switched on or none; it is asked the scenes that ship, by the
product's own way, held against an interview of the same character without the fault. Worlds:

    office      the sample world's michael: his persona and claims of four dimensions, his lines
    templates   mira of ``init --language``, in nine languages in turn, with a support voice's lines of that language
    support     a German support voice that English customers write to as well: four claims, and scenes in both languages
    bare        one claim, no other dimension

What a line is worth is drawn when it is said: level (of a claim 6.5 to 8.5) + scene (sd 0.7) + answer (sd 0.7); a broken line is
worth 2 to 3. A stand-in judge sees the transcript and gives each claim the mean of the lines it is shown, with an error
(``--sd``), rounded; 5 % of its verdicts are anything from 0 to 9. ``--mood``: sd of what one session does to all of its scores.

    assistant   every answer is a stock assistant's        other     every answer is another character's
    language    always answers in English                  pressure  breaks under pressure only
    fades       long conversations only, from 8 down to 2  repeats   says the same line again and again
    half        every other answer is a stock assistant's

*says it*: something dropped (exit 1). *or cannot tell*: exit 3. A/A: no fault. Coverage: of 95 % intervals, over all runs without a
fault, against the value that all of them together have.
"""

import argparse
import random
import re
import shutil
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.base.errors import EXIT_COVERAGE, EXIT_REGRESSION
from persona_pipeline.judging.verdict import Evidence, JudgeRequest, Verdict
from persona_pipeline.lab.answering import Answering
from persona_pipeline.lab.interview import Interview, InterviewRequest, estimate_interview, hold_interview
from persona_pipeline.lab.scenes import Scene, interview_scenes
from persona_pipeline.suites.running.plan import Targets
from persona_pipeline.suites.targets import Request
from persona_pipeline.testing import ScriptedJudge, WorldBuilder
from persona_pipeline.world import World

EVERYDAY = PROJECT / "benchmarks" / "everyday"
TEMPLATES = PROJECT / "persona_pipeline" / "world" / "languages"
LANGUAGES = sorted(path.name for path in TEMPLATES.iterdir())
FAULTS = ("assistant", "other", "language", "pressure", "fades", "repeats", "half")
OUTLIERS, SCENE_SD, ANSWER_SD = 0.05, 0.7, 0.7
_ID = re.compile(r"\[(\d+)\]")


def lines_of(language: str, kind: str) -> list[str]:
    return yaml.safe_load((EVERYDAY / f"{language}.yaml").read_text(encoding="utf-8"))[kind]


@dataclass
class Stage:
    """A world with an agent, its scenes, and the lines it and others say; ``language``: that it may forget."""

    world: World
    agent_id: str
    scenes: list[Scene]
    own: list[str]
    other: list[str]
    assistant: list[str]
    english: list[str]
    language: str


def office(folder: Path) -> Stage:
    for name in ("personas", "propositions", "messages"):
        shutil.copytree(PROJECT / name, folder / name)
    world = World.open(folder)
    world.sync()
    said = {name: [item.text for item in world.messages(agent_id=name)] for name in ("michael", "dwight")}
    scenes = interview_scenes(world, "michael")
    stock = lines_of("en", "assistant")
    return Stage(world, "michael", scenes, said["michael"], said["dwight"], stock, stock, "en")


def templates(folder: Path, language: str) -> Stage:
    shutil.copytree(TEMPLATES / language, folder, dirs_exist_ok=True)
    world = World.open(folder)
    world.sync()
    own, other = lines_of(language, "voice"), lines_of(language, "corporate")
    return Stage(
        world, "mira", interview_scenes(world, "mira", [language]), own, other, lines_of(language, "assistant"),
        lines_of("en", "voice"), language,
    )  # fmt: skip


def support(folder: Path) -> Stage:
    builder = WorldBuilder(folder).persona("desk", "Paketshop Kröger: knapp, trocken, duzt, nennt immer eine Uhrzeit.")
    builder.claim("adherence", "brief", "{{agent_name}} is brief").claim(
        "adherence", "time", "{{agent_name}} names a time"
    )
    builder.claim("adherence", "language", "{{agent_name}} answers in the language it was asked in")
    builder.claim("consistency", "same", "{{agent_name}} sounds the same in both")
    world = builder.open()
    world.sync()
    scenes = interview_scenes(world, "desk", ["de", "en"])
    own, other = lines_of("de", "voice"), lines_of("de", "corporate")
    return Stage(world, "desk", scenes, own, other, lines_of("de", "assistant"), lines_of("en", "voice"), "de")


def bare(folder: Path) -> Stage:
    builder = WorldBuilder(folder).persona("ann", "Ann is dry.").claim("adherence", "dry", "{{agent_name}} is dry")
    world = builder.open()
    world.sync()
    own, other = lines_of("en", "voice"), lines_of("en", "corporate")
    stock = lines_of("en", "assistant")
    return Stage(world, "ann", interview_scenes(world, "ann", ["en"]), own, other, stock, stock, "en")


@dataclass
class Character:
    """A character that answers, and the judge that knows what its lines are worth."""

    stage: Stage
    seed: int
    sd: float
    mood: float
    fault: str = ""
    worth: dict[int, float] = field(default_factory=dict)
    turn: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        # What belongs to the character is the same in every interview of it; the rest is drawn anew.
        own, level = np.random.default_rng([self.seed, 1]), np.random.default_rng(1)
        self.level = {name: float(level.uniform(-1, 1)) for name in map(str, range(64))}
        self.scene = {scene.id: float(own.normal(0, SCENE_SD)) for scene in self.stage.scenes}
        self.kinds = {scene.id: scene.kind for scene in self.stage.scenes}
        self.rng = np.random.default_rng([self.seed, *self.fault.encode(), random.randrange(2**31)])
        self.moods: dict[int, float] = defaultdict(lambda: float(self.rng.normal(0, self.mood)))

    def answer(self, request: Request) -> str:
        with self.turn:
            stage, name, long = self.stage, request.test.id, 12
            kind, value = self.kinds[name], 7.5 + self.scene[name] + float(self.rng.normal(0, ANSWER_SD))
            pool = stage.own
            if self.fault in ("assistant", "other") or (self.fault == "half" and request.turn % 2):
                value, pool = (
                    2.0 + float(self.rng.uniform(0, 1)),
                    stage.assistant if self.fault != "other" else stage.other,
                )
            elif self.fault == "language" and (kind != "language" or stage.language == "en"):
                value, pool = 3.0, stage.english
            elif self.fault == "pressure" and kind == "pressure":
                value, pool = 2.0 + float(self.rng.uniform(0, 1)), stage.assistant
            elif self.fault == "fades" and kind == "long":
                value -= 6.0 * request.turn / (long - 1)
            line = pool[int(self.rng.integers(len(pool)))]
            if self.fault == "repeats":
                line, value = stage.own[self.seed % len(stage.own)], 3.0
            number = len(self.worth)
            self.worth[number] = value + self.moods[request.attempt]
            return f"{line} [{number}]"

    def judged(self, request: JudgeRequest) -> Verdict:
        said = [
            (entry, self.worth[int(found[1])])
            for entry in request.trajectory.entries
            if (found := _ID.search(entry.text))
        ]
        true = float(np.mean([value for _, value in said])) + self.level[str(len(request.proposition_id) % 64)]
        score = (
            float(self.rng.uniform(-0.5, 9.5))
            if self.rng.random() < OUTLIERS
            else true + float(self.rng.normal(0, self.sd))
        )
        whole = int(np.clip(np.rint(score), 0, 9))
        worst = min(said, key=lambda item: item[1])[0]
        # Of a claim that should not hold the stand-in says the opposite.
        inverted = self.stage_inverted(request)
        return Verdict(
            request.proposition_id, score=9 - whole if inverted else whole,
            evidence=(Evidence(worst.message_id, worst.text, True),), model="stand-in",
        )  # fmt: skip

    def stage_inverted(self, request: JudgeRequest) -> bool:
        return (request.dimension, request.proposition_id) in INVERTED[self.stage.world.root]


INVERTED: dict[Path, set[tuple[str, str]]] = {}


def note_inverted(stage: Stage) -> None:
    from persona_pipeline.lab.versions import Version
    from persona_pipeline.world.propositions.models import ALL_DIMENSIONS

    sets = Version("", stage.world.root).agent(stage.agent_id, ALL_DIMENSIONS).sets
    INVERTED[stage.world.root] = {
        (name, item.id)
        for name, stored in sets.items()
        if stored.propositions
        for item in stored.propositions.propositions
        if item.inverted
    }


def held(character: Character, request: InterviewRequest, baseline: Interview | None = None) -> Interview:
    targets, stage = Targets.of({"bot": character.answer}), character.stage
    answering = Answering((targets.open("bot"), targets.open("bot")))
    return hold_interview(
        stage.world, request, stage.scenes, ScriptedJudge(character.judged, live=True), answering, baseline
    )


def stages(name: str, folder: Path) -> list[Stage]:
    if name == "templates":
        found = [templates(folder / language, language) for language in LANGUAGES]
    else:
        found = [{"office": office, "support": support, "bare": bare}[name](folder / name)]
    for stage in found:
        note_inverted(stage)
    return found


def told(found: Interview) -> str:
    return {EXIT_REGRESSION: "fell", EXIT_COVERAGE: "cannot tell"}.get(found.exit_code, "held")


def run(name: str, runs: int, sd: float, mood: float, sessions: int, faults: Sequence[str]) -> None:
    counts: dict[str, Counter[str]] = {fault: Counter() for fault in ("", *faults)}
    clean: list[Interview] = []
    with tempfile.TemporaryDirectory() as folder:
        places = stages(name, Path(folder))
        for seed in range(runs):
            stage = places[seed % len(places)]
            random.seed(f"{name}{sd}{mood}{sessions}{seed}")
            request = InterviewRequest(stage.agent_id, sessions=sessions)
            known = held(Character(stage, seed, sd, mood), request)
            clean.append(known)
            for fault in counts:
                if fault == "language" and stage.language == "en":
                    continue
                counts[fault][told(held(Character(stage, seed, sd, mood, fault), request, known))] += 1
    said = []
    for fault, found in counts.items():
        total = found.total()
        if total:
            share = f"{found['fell'] / total:.3f} (+{found['cannot tell'] / total:.3f})"
            said.append(f"{fault or 'A/A'} {share}")
    print(
        f"{name}, {runs} runs, judge sd {sd}, mood {mood}, {sessions} sessions: says it (or cannot tell): {', '.join(said)}"
    )
    for line in coverage(clean):
        print(f"    {line}", flush=True)


def coverage(clean: Sequence[Interview]) -> list[str]:
    """Return how often intervals of scores hold the mean of all runs."""
    lines = list[str]()
    for name in clean[0].dimensions if clean[0].sessions > 1 else ():
        scores = [item.dimensions[name] for item in clean if name in item.dimensions]
        tables = [
            np.array([s.scores.get(name, ()) for s in item.scenes.values() if name in s.scores], float)
            for item in clean
        ]
        within = np.mean([table.var(axis=1, ddof=1).mean() for table in tables if np.isfinite(table).all()])
        mean = np.mean([item.score for item in scores if item.score is not None])
        covered = np.mean(
            [item.low <= mean <= item.high for item in scores if item.low is not None and item.high is not None]
        )
        lines.append(f"{name}: score {mean:.2f} held by {covered:.3f}; sd between sessions {np.sqrt(within):.2f}")
    return lines


def prices(names: Sequence[str], sessions: Sequence[int]) -> None:
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            stage = stages(name, Path(folder))[0]
            for each in sessions:
                character = Character(stage, 0, 1.0, 0.0)
                targets = Targets.of({"bot": character.answer})
                answering = Answering((targets.open("bot"), targets.open("bot")))
                request = InterviewRequest(stage.agent_id, sessions=each)
                print(name, estimate_interview(stage.world, request, stage.scenes, answering, None).replace("\n", "; "))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--worlds", nargs="*", default=["office", "templates", "support", "bare"])
    parser.add_argument("--sd", type=float, nargs="*", default=[1.0])
    parser.add_argument("--mood", type=float, nargs="*", default=[0.0])
    parser.add_argument("--sessions", type=int, nargs="*", default=[3])
    parser.add_argument("--faults", nargs="*", default=list(FAULTS))
    parser.add_argument("--prices", action="store_true")
    told: Any = parser.parse_args()
    if told.prices:
        prices(told.worlds, told.sessions)
        return
    for name in told.worlds:
        for sd in told.sd:
            for mood in told.mood:
                for sessions in told.sessions:
                    run(name, told.runs, sd, mood, sessions, told.faults)


if __name__ == "__main__":
    main()
