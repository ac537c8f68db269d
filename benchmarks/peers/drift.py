"""Does a character drift? Every detector on the same streams, by its documented limit and by one that is set alike for all."""

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.changes import BEFORE, KINDS, Case, subjects
from benchmarks.peers.detectors import DETECTORS
from benchmarks.peers.installing import PROJECT, Installed

OURS = ("persona-pipeline, alone", "persona-pipeline, with its cast")
BASELINES = ("TF-IDF classifier", "length")
# Which package a detector is of; the others are run here.
PACKAGE = {
    "evidently text": "evidently",
    "evidently descriptors": "evidently",
    "alibi-detect KS": "alibi-detect",
    "frouros MMD": "frouros",
    "river ADWIN": "river",
    "river Page-Hinkley": "river",
    "Alignmenter": "alignmenter",
    "persiq": "persiq",
}
PARTIES = (*OURS, *DETECTORS, *BASELINES)
# Of the stretches that limits are set by, so many may have an alarm.
ALLOWED = 0.05
Stream = tuple[list[int] | None, list[tuple[int, float]]]


@dataclass(frozen=True)
class Rate:
    """A share of trials, with how many and a 95 % interval for trials that are alike within a character."""

    hits: int
    trials: int
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.hits / self.trials if self.trials else math.nan

    def __str__(self) -> str:
        return f"{self.value:.0%} [{100 * self.low:.0f}, {100 * self.high:.0f}]" if self.trials else "–"


def rate(groups: Sequence[Sequence[bool]]) -> Rate:
    """Return the share of all trials, Wilson's interval for as many independent ones as they are worth (Kish's design effect)."""
    from scipy.stats import norm

    groups = [group for group in groups if group]
    trials, hits = sum(map(len, groups)), sum(map(sum, groups))
    if not trials:
        return Rate(0, 0, math.nan, math.nan)
    share, worth = hits / trials, float(trials)
    if 0 < hits < trials and len(groups) > 1:
        # The variance of the groups' sums over what it would be if every trial were on its own.
        spread = sum((sum(group) - share * len(group)) ** 2 for group in groups) * len(groups) / (len(groups) - 1)
        worth = trials / max(1.0, spread / (trials * share * (1 - share)))
    z = float(norm.ppf(0.975))
    middle, reach = (
        share + z * z / (2 * worth),
        z * math.sqrt(share * (1 - share) / worth + z * z / (4 * worth * worth)),
    )
    low, high = ((middle + sign * reach) / (1 + z * z / worth) for sign in (-1, 1))
    return Rate(hits, trials, max(0.0, low), min(1.0, high))


@dataclass(frozen=True)
class Alarms:
    """After how many messages each stream's first alarm was, by character and kind of stream; None: none."""

    first: Sequence[Mapping[str, Sequence[int | None]]]

    def false_alarms(self, only: Sequence[int] | None = None) -> Rate:
        """Return the share of stretches without a change that have an alarm; ``only``: of these characters."""
        return rate([[at is not None for at in self.first[n]["unchanged"]] for n in self._of(only)])

    def seen(self, kinds: Sequence[str], within: int, only: Sequence[int] | None = None) -> Rate:
        """Return the share of changes first told within so many messages; an alarm before the change is none of it."""
        return rate(
            [
                [at is not None and BEFORE < at <= BEFORE + within for kind in kinds for at in self.first[n][kind]]
                for n in self._of(only)
            ]
        )

    def delay(self, kinds: Sequence[str], only: Sequence[int] | None = None) -> float:
        """Return the median number of changed messages until the alarm, infinity where most raise none."""
        late = [
            at - BEFORE if at is not None and at > BEFORE else math.inf
            for n in self._of(only)
            for kind in kinds
            for at in self.first[n][kind]
        ]
        late.sort()
        return late[(len(late) - 1) // 2] if late else math.inf

    def _of(self, only: Sequence[int] | None) -> Sequence[int]:
        return range(len(self.first)) if only is None else only


@dataclass(frozen=True)
class Measured:
    """What a detector did: alarms by its documented limit (None: it documents none) and by the limit set alike for all."""

    party: str
    documented: Alarms | None
    alike: Alarms
    learning_seconds: float
    seconds_per_1000: float


def limit_of(streams: Sequence[Stream], allowed: float = ALLOWED) -> float:
    """Return the lowest limit that a share of at most ``allowed`` of the streams goes beyond."""
    highest = sorted((max((score for _, score in scores), default=0.0) for _, scores in streams), reverse=True)
    return highest[int(allowed * len(highest))]


def beyond(stream: Stream, limit: float) -> int | None:
    return next((number for number, score in stream[1] if score > limit), None)


def measured(party: str, found: Sequence[Mapping[str, Any]]) -> Measured:
    """Return what comes of what a detector wrote of each character."""
    documented, alike = [], []
    for case in found:
        streams: Mapping[str, Sequence[Stream]] = case["streams"]
        limit = limit_of(streams["calibration"])
        kinds = ("unchanged", *KINDS)
        alike.append({kind: [beyond(stream, limit) for stream in streams[kind]] for kind in kinds})
        documented.append(
            {kind: [min(fired) if fired else None for fired, _ in streams[kind]] for kind in kinds}
            if all(fired is not None for kind in kinds for fired, _ in streams[kind])
            else None
        )
    read = [case["read"] for case in found]
    return Measured(
        party,
        Alarms(documented) if all(documented) else None,  # type: ignore[arg-type]
        Alarms(alike),
        sum(case["learnt"] for case in found) / len(found),
        1000 * sum(seconds for seconds, _ in read) / sum(messages for _, messages in read),
    )


def run_parties(
    cases: Sequence[Case], installed: Mapping[str, Installed], parties: Sequence[str] = PARTIES
) -> tuple[dict[str, Measured], dict[str, str]]:
    """Run every detector in a process of its own, two at a time; return what they did, and why others did nothing."""
    found, missing = dict[str, Measured](), dict[str, str]()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        given = Path(folder) / "cases.json"
        given.write_text(json.dumps([_given(case) for case in cases]), encoding="utf-8")
        runs = {}
        for number, party in enumerate(parties):
            peer = installed.get(PACKAGE.get(party, ""))
            if peer is not None and peer.program is None:
                missing[party] = peer.why
                continue
            out = Path(folder) / f"{number}.json"
            script = (
                ["-m", "benchmarks.peers.here"] if peer is None else [str(Path(__file__).with_name("detectors.py"))]
            )
            program = sys.executable if peer is None else str(peer.program)
            runs[party] = pool.submit(
                _run, [program, "-W", "ignore", *script, party, str(given), str(out)], out, folder
            )
        for party, run in runs.items():
            try:
                found[party] = measured(party, run.result())
            except subprocess.CalledProcessError as error:
                missing[party] = f"failed: {(error.stderr.strip().splitlines() or ['without a word'])[-1][:120]}"
            print(f"  {party}: {missing.get(party, 'done')}", flush=True)
    return found, missing


def _given(case: Case) -> dict[str, Any]:
    return case.as_json() | {"words": subjects([[case.texts[place] for place in case.history]], 30)}


def _run(command: list[str], out: Path, home: str) -> Any:
    # No key, no home with settings of somebody's, no telemetry: what is documented to work without them.
    environment = {
        "PATH": os.environ["PATH"], "HOME": home, "PYTHONPATH": str(PROJECT) if "-m" in command else "",
        "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "DO_NOT_TRACK": "1",
    }  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, text=True, cwd=PROJECT, env=environment)
    return json.loads(out.read_text(encoding="utf-8"))
