"""How often a comparison of two versions is wrong, and how many calls it saves: ``python benchmarks/compare.py``.

An agent of some claims answers scenes; an answer is better or worse than another one by chance (sd 0.7 a claim), a judge gives
each claim a rounded score with an error (sd 0.5 to 1.5), and 5 % of its verdicts are anything from 0 to 9. Two versions are the
same, or the second is 1 point lower in every claim.

First the statistics alone, many runs; then the whole way: targets that answer, a judge that is asked, ``compare_versions``.
"""

import argparse
import math
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from persona_pipeline.baselines.families import DIMENSIONS_SHARE, LEVEL
from persona_pipeline.baselines.paired import log_wealth
from persona_pipeline.judging.verdict import JudgeRequest
from persona_pipeline.suites.running.targets_file import Targets
from persona_pipeline.suites.targets import Request
from persona_pipeline.testing import ScriptedJudge, WorldBuilder
from persona_pipeline.versions.answering import Answering
from persona_pipeline.versions.comparing import Contest, compare_versions
from persona_pipeline.versions.request import ComparisonRequest
from persona_pipeline.versions.result import Moved
from persona_pipeline.versions.scenes import moments
from persona_pipeline.versions.sides import Side
from persona_pipeline.world import World

ANSWER_SD, OUTLIERS = 0.7, 0.05
Numbers = NDArray[np.float64]


def draw(rng: np.random.Generator, runs: int, scenes: int, claims: int, sd: float, drop: float) -> Numbers:
    """Return the differences of a dimension, after minus before, by run and scene."""
    level = rng.uniform(5.5, 8.0, (runs, 1, claims))
    scene = rng.normal(0, 0.7, (runs, scenes, 1)) + rng.normal(0, 0.5, (runs, scenes, claims))

    def judged(shift: float) -> Numbers:
        true = level + scene + shift + rng.normal(0, ANSWER_SD, (runs, scenes, claims))
        said = true + rng.normal(0, sd, true.shape)
        odd = rng.random(true.shape) < OUTLIERS
        return np.clip(np.rint(np.where(odd, rng.uniform(-0.5, 9.5, true.shape), said)), 0, 9)

    return (judged(-drop) - judged(0.0)).mean(axis=2)


def stops(differences: Numbers, level: float) -> Numbers:
    """Return after how many scenes each run shows a change, infinity where it never does."""
    found = np.full(len(differences), math.inf)
    for place, row in enumerate(differences):
        shown = np.flatnonzero(log_wealth(row, np.zeros(1))[0] >= math.log(1 / level))
        if len(shown):
            found[place] = shown[0] + 1
    return found


def fixed_power(differences: Numbers, scenes: int, level: float) -> float:
    """Return how often a paired t test of so many scenes shows a change."""
    rows = differences[:, :scenes]
    t = rows.mean(axis=1) / (rows.std(axis=1, ddof=1) / math.sqrt(scenes))
    return float((2 * stats.t.sf(np.abs(t), scenes - 1) <= level).mean())


def fixed_size(differences: Numbers, power: float, level: float) -> int:
    """Return the fewest scenes with which a paired t test has a power, up to as many as were drawn."""
    low, high = 2, differences.shape[1]
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fixed_power(differences, middle, level) >= power else (middle + 1, high)
    return low


def statistics_alone(runs: int) -> None:
    """Print the table of the statistics."""
    level, most = LEVEL * DIMENSIONS_SHARE, 240
    print(
        f"{runs} runs a cell, looked at after every scene, at most {most} scenes; level {level:.4f} as for one dimension"
    )
    print(
        "claims | judge sd | sd of a difference | A/A shown | seen | scenes, mean | fixed size: power .95, .99, .999 | share"
    )
    for claims in (1, 3, 5, 8):
        for sd in (0.5, 1.0, 1.5):
            rng = np.random.default_rng([claims, int(sd * 10)])
            same = stops(draw(rng, runs, most, claims, sd, 0.0), level)
            other = draw(rng, runs, most, claims, sd, 1.0)
            seen = stops(other, level)
            sizes = [fixed_size(other, power, level) for power in (0.95, 0.99, 0.999)]
            mean = float(np.minimum(seen, most).mean())
            shares = ", ".join(f"{mean / size:.2f}" for size in sizes)
            print(
                f"{claims} | {sd} | {other.std(axis=1, ddof=1).mean():.2f} | {np.isfinite(same).mean():.3f} | "
                f"{np.isfinite(seen).mean():.4f} | {mean:.1f} | {', '.join(map(str, sizes))} | {shares}",
                flush=True,
            )


def world_of(folder: Path, claims: int) -> World:
    """Write an agent with claims and a few moments to answer in."""
    builder = WorldBuilder(folder).persona("ann", "Ann is dry and brief.").persona("bob", "Bob loves machines.")
    for number in range(claims):
        builder.claim("adherence", f"c{number}", f"{{{{agent_name}}}} has property {number}")
    for number in range(60):
        builder.say("bob" if number % 2 else "ann", f"Line {number}, said once.")
    world = builder.open()
    world.sync()
    return world


def contest_of(world: World, seed: int, sd: float, drop: float, claims: int) -> tuple[Contest, dict[str, int]]:
    """Return two versions whose answers tell the judge how good they are, and the calls that were made."""
    rng = np.random.default_rng([seed, int(sd * 10), int(drop * 10)])
    level, scenes, calls, lock = rng.uniform(5.5, 8.0, claims), {}, {"judged": 0}, threading.Lock()

    def answering(shift: float) -> Any:
        def answer(request: Request) -> str:
            asked = request.test.id, request.attempt
            # Both sides answer at the same time, and what the scene does is done to both.
            with lock:
                if asked not in scenes:
                    scenes[asked] = rng.normal(0, 0.7) + rng.normal(0, 0.5, claims)
                true = level + scenes[asked] + shift + rng.normal(0, ANSWER_SD, claims)
            return " ".join(f"{value:.3f}" for value in true)

        return answer

    def judged(request: JudgeRequest) -> int:
        calls["judged"] += 1
        if rng.random() < OUTLIERS:
            return int(rng.integers(0, 10))
        true = float(request.trajectory.entries[-1].text.split()[int(request.proposition_id[1:])])
        return int(np.clip(np.rint(true + rng.normal(0, sd)), 0, 9))

    targets = Targets.of({"before": answering(0.0), "after": answering(-drop)})
    judge = ScriptedJudge(judged, live=True)
    asks = Answering((targets.open("before"), targets.open("after")))
    sides = (Side("before", world.root), Side("after", world.root))
    return Contest(world, sides, (judge, judge), asks), calls


def whole_way(runs: int, sd: float, claims: int) -> None:
    """Print what runs of the product itself come to."""
    request = ComparisonRequest(agents=["ann"], dimensions=["adherence"], scenes=120)
    for drop in (0.0, 1.0):
        shown, same, scenes, calls, covered = 0, 0, [], [], 0
        with tempfile.TemporaryDirectory() as folder:
            world = world_of(Path(folder), claims)
            drawn = {"ann": moments(world, "ann", request)}
            for seed in range(runs):
                contest, counted = contest_of(world, seed, sd, drop, claims)
                found = compare_versions(contest, drawn, request)
                item = found.agents["ann"].dimensions["adherence"]
                wrong = drop == 0.0 and bool(found.agents["ann"].moved)
                shown += item.moved in (Moved.FELL, Moved.ROSE) or wrong
                same += item.moved is Moved.SAME
                scenes.append(found.agents["ann"].scenes)
                calls.append(counted["judged"] + found.answers)
                covered += item.low is None or item.low <= -drop <= (item.high or 0.0)
        print(
            f"drop {drop}: {shown / runs:.3f} shown, {same / runs:.3f} called the same, scenes {np.mean(scenes):.1f} (most "
            f"{max(scenes)}), calls {np.mean(calls):.0f}, interval holds {drop} in {covered / runs:.3f}",
            flush=True,
        )


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=4000, help="of the statistics alone, a cell")
    parser.add_argument("--whole", type=int, default=500, help="of the whole way")
    parser.add_argument("--sd", type=float, nargs="*", default=[0.5, 1.0, 1.5], help="of the judge, the whole way")
    told = parser.parse_args()
    if told.runs:
        statistics_alone(told.runs)
    for sd in told.sd if told.whole else ():
        print(f"the whole way, {told.whole} runs, 5 claims, judge sd {sd}")
        whole_way(told.whole, sd, 5)


if __name__ == "__main__":
    main()
