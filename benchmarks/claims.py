"""How often a test of claims sees a kill that is the judge's noise alone, and how often it sees a real one.

Run: python benchmarks/claims.py [--runs 100]

The sample world's michael with 20 claims, five faults and two other agents, planned and evaluated by the package's own
functions. A judge gives each claim its true level plus a normal of sd, rounds, and stays within 0-9; with outliers 5 % of its
verdicts are any score.

    false kills   share of tests in which noise alone catches something, where no claim catches anything (aim: at most 5 %
                  judged 3 times and without outliers)
    seen          share of real kills that are seen, by how far the claim falls from 8
"""

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.judging.verdict import JudgeRequest, Verdict
from persona_pipeline.lab.claims.trial import Trial, TrialRequest, plan_trial, run_trial
from persona_pipeline.world import World
from tests.claims.test_trial import windows_of, write_claims

CLAIMS, LEVEL = 20, 8
FALLS = (4, 5, 6, 8)
FAULT = "boilerplate"


@dataclass
class Judge:
    """Attributes: falls: by claim, how far it falls under the fault; outliers: share of verdicts that are any score."""

    windows: dict[str, str]
    sd: float
    outliers: float
    seed: int
    falls: dict[str, int]
    name: str = "simulated"
    live: bool = True

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        return [self._verdict(request) for request in requests]

    def _verdict(self, request: JudgeRequest) -> Verdict:
        draw = random.Random(f"{self.seed}/{request.key}")
        broken = self.windows[request.subject["trajectory"]] == FAULT
        level = LEVEL - (self.falls.get(request.proposition_id, 0) if broken else 0)
        score = draw.randrange(10) if draw.random() < self.outliers else round(draw.gauss(level, self.sd))
        return Verdict(request.proposition_id, score=max(0, min(9, score)))


def measure(trial: Trial, sd: float, outliers: float, runs: int) -> str:
    windows = windows_of(trial)
    false = 0
    seen = dict.fromkeys(FALLS, 0)
    falls = {f"claim-{n}": fall for n, fall in enumerate(FALLS)}
    for seed in range(runs):
        idle = run_trial(trial, Judge(windows, sd, outliers, seed, {}))
        false += any(row.kills for row in idle.claims)
        working = run_trial(trial, Judge(windows, sd, outliers, seed, falls))
        for row in working.claims:
            if row.id in falls and FAULT in row.kills:
                seen[falls[row.id]] += 1
    told = "  ".join(f"{fall}: {count / runs:4.0%}" for fall, count in seen.items())
    return f"{sd:>4} {outliers:>9.0%} {trial.request.samples:>8}   {false / runs:>11.0%}   {told}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    runs = parser.parse_args().runs
    request = TrialRequest("michael", as_of=datetime(2026, 6, 14, 23, 59, 59, tzinfo=UTC))
    sample = Path(__file__).resolve().parents[1]
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("personas", "messages"):
            (root / name).symlink_to(sample / name)
        write_claims(root, {"adherence": {f"claim-{n}": {} for n in range(CLAIMS)}})
        world = World.open(root)
        print("  sd  outliers  samples   false kills   seen, by the fall")
        for samples in (1, 3, 5):
            trial = plan_trial(world, replace(request, samples=samples))
            for sd in (0.5, 1.0, 1.5):
                for outliers in (0.0, 0.05):
                    print(measure(trial, sd, outliers, runs), flush=True)
        world.store.close()


if __name__ == "__main__":
    main()
