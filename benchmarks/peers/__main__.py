"""The scoreboard: peers that install and persona-pipeline on the same worlds, written to docs/scoreboard.md.

    make peers                                     what follows, in an environment that it makes
    python -m benchmarks.peers [--quick] [--seed 1] [--output docs/scoreboard.md]
    python -m benchmarks.peers suites [...]        the comparison of suites alone, at length (benchmarks/peers/suites.py)
    python -m benchmarks.peers ratings FILE        ratings of your own (docs/scoreboard.md)

The first run installs peers and texts into .persona/peers. ``--quick``: one world, few draws, and only to see that it works.
"""

import argparse
import os
import pickle
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.peers import drift, page, ratings, repetition, suites
from benchmarks.peers.changes import Plan, cases
from benchmarks.peers.installing import HOME, PROJECT, install
from benchmarks.peers.texts import WORLDS, read_worlds

QUICK = Plan(calibration=10, unchanged=2, changed=1)


def scoreboard(options: argparse.Namespace) -> None:
    """Install what is missing, measure, and write the page; ``again``: write that of the last run, measure nothing."""
    kept = options.home / "results.pickle"
    if options.again:
        # Our own file, of a run on this machine.
        write(pickle.loads(kept.read_bytes()), options)
        return
    installed = install(options.home)
    started, cpu = time.monotonic(), os.times()
    names = ("desk",) if options.quick else tuple(WORLDS)
    worlds, missing = read_worlds(names, options.home)
    plan = QUICK if options.quick else Plan()
    drawn = list(cases(worlds, plan, options.seed))
    print(f"drift: {len(drawn)} characters ...", flush=True)
    found, absent = drift.run_parties(drawn, installed)
    print("repetition, and who sounds alike ...", flush=True)
    repeats = repetition.repetition(worlds, installed, 5 if options.quick else 20, options.seed)
    alike = repetition.alike(worlds, 2 if options.quick else 5, options.seed)
    print("suites ...", flush=True)
    compared = suites.compare_all(
        installed, 200 if options.quick else 2000, 100 if options.quick else 500, options.seed
    )
    print("ratings ...", flush=True)
    try:
        rated = ratings.correlations(ratings.chats(options.home, 100 if options.quick else 1500), installed)
    except OSError as error:
        rated, missing = [], missing | {"chat": str(error)}
    used = os.times()
    results = page.Results(
        date=datetime.now(UTC).date().isoformat(),
        command="make peers QUICK=1" if options.quick else "make peers",
        seed=options.seed,
        minutes=(time.monotonic() - started) / 60,
        cpu_minutes=sum(b - a for a, b in zip(cpu[:4], used[:4], strict=True)) / 60,
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        load=os.getloadavg()[1],
        plan=plan,
        characters=[(case.world, case.character, len(case.history)) for case in drawn],
        drift=found,
        not_run=absent | {f"world {name}": why for name, why in missing.items()},
        installed=installed,
        repetition=repeats,
        alike=alike,
        suites=compared,
        ratings=rated,
    )
    kept.write_bytes(pickle.dumps(results))
    write(results, options)


def write(results: page.Results, options: argparse.Namespace) -> None:
    options.output.write_text(page.rendered(results), encoding="utf-8")
    print(
        f"{options.output.relative_to(PROJECT) if options.output.is_relative_to(PROJECT) else options.output} is written"
    )


def compare_suites(options: argparse.Namespace) -> int:
    """Print how verdicts compare; 1 where something differs that no import named."""
    found = suites.compare_all(
        install(options.home), options.pairs, options.structures, options.seed,
        only=options.only or suites.PEERS, show=options.show,
    )  # fmt: skip
    return int(any(counts.unnamed for counts in found.values()))


def rate_file(options: argparse.Namespace) -> int:
    """Print rank correlations with the ratings of a file."""
    try:
        rated = ratings.read_ratings(options.file, options.text, options.rating, options.conversation)
    except (ratings.RatingsError, OSError, UnicodeDecodeError) as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(page.ratings_table(ratings.correlations(rated, {}))))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=HOME, help="where peers and texts are installed and left")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--again", action="store_true", help="write the page of the last run anew, measure nothing")
    parser.add_argument("--output", type=Path, default=PROJECT / "docs" / "scoreboard.md")
    parser.set_defaults(run=lambda options: scoreboard(options) or 0)
    commands = parser.add_subparsers()
    suite = commands.add_parser("suites", help="compare verdicts of suites at length")
    suite.add_argument("--pairs", type=int, default=8000)
    suite.add_argument("--structures", type=int, default=1500)
    suite.add_argument("--only", action="append", choices=suites.PEERS)
    suite.add_argument("--show", type=int, default=10, help="how many differences that nobody named are shown")
    suite.set_defaults(run=compare_suites)
    rated = commands.add_parser("ratings", help="ratings of a file of your own")
    rated.add_argument("file", type=Path)
    for name in ("text", "rating", "conversation"):
        rated.add_argument(f"--{name}", default=name, help="the column")
    rated.set_defaults(run=rate_file)
    options = parser.parse_args()
    options.home = options.home.absolute()
    options.output = options.output.absolute()
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
