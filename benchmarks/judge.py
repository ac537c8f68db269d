"""The live judge: whether an estimate holds, and whether a replay is the run again.

**estimates**

Whether an estimate holds: what is said before a run against what the run then takes, in eleven situations.

Run: python benchmarks/judge.py estimates

Each situation is a copy of the sample world (without recordings unless it says so), judged by the real SDK through a local
server that counts tokens (four characters each), caches prefixes and answers at the length the situation says. Printed: the
expected price, what was paid, and whether "at most" held.

**replays**

Is a replay of a live run's recordings that run again? Same scores, comparison, findings, verdicts and exit code.

    python benchmarks/judge.py replays [--runs 300] [--failing 0.005] [--failing-again SHARE]

Three agents of five dimensions in two channels, with live baselines of three weeks judged three times; now judged once or three
times by a judge with noise (sd 0.5, 1.0, 1.5), of whose judgments a share fails. In the newest week nothing happens to one agent,
or a claim collapses, or a dimension drops by 2, or all drop by 1.5, so that falls are judged again. Every run records what it is
told and is replayed with a new store, through the stages of the product. Ends with 1 where a replay differs.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.settings import get_settings
from persona_pipeline.evaluation.estimate import estimate_run
from persona_pipeline.evaluation.run import (
    run_evaluation,
)
from persona_pipeline.judging.batches import collect_batches, submit_batch
from persona_pipeline.judging.claims import questions_of
from persona_pipeline.judging.estimate import estimate
from persona_pipeline.judging.open import (
    JudgeOptions,
    open_judge,
)
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.world import World
from tests.support.evaluating import planned_requests
from tests.support.messages_server import Call, MessagesServer, Outcome, message, verdicts
from tests.support.replaying import Case, cases, live_and_replayed, told, write_world
from tests.support.worlds import replace_in

PARTS = ("personas", "propositions", "messages", "baselines")
BASELINE = EvaluationRequest(as_of=datetime(2026, 6, 14, 23, 59, 59, tzinfo=UTC), update_baseline=True, confirm=False)
TWO_DIMENSIONS = EvaluationRequest(agents=["dwight", "jim"], dimensions=["adherence", "fluency"], confirm=False)


@dataclass
class Stage:
    """A world, the server that judges it, and how it answers: scores at 8, a reason of so many words."""

    world: World
    server: MessagesServer
    score: Callable[[str], int] = lambda claim: 8
    words: int = 40

    def answer(self, call: Call) -> Outcome:
        if "play a persona" in str(call.body["system"]):
            return message(json.dumps({"message": "It is what it is, and it is on my desk. " * 4}))
        told = verdicts(call.body, self.score)
        claims = [item for item in told["verdicts"] if "proposition_id" in item]
        for number, item in enumerate(claims):
            spread = hashlib.sha256(f"{item['proposition_id']}{number}{len(call.raw)}".encode()).digest()[0] / 255
            item["reasoning"] = "because " * int(self.words * (0.5 + spread))
        return message(json.dumps(told))

    def run(self, request: EvaluationRequest, **options: Any) -> float:
        """Return the dollars a run takes."""
        judge = open_judge("anthropic", self.world, JudgeOptions(**options))
        return run_evaluation(self.world, judge, request).report.usage.usd or 0.0

    def judged(self, request: EvaluationRequest, **options: Any) -> tuple[float, float, float]:
        """Return the expected price, its most, and what the run then took."""
        said = estimate_run(self.world, request, asking=JudgeOptions(**options))
        assert said.usd
        assert said.worst_usd is not None
        return said.usd, said.worst_usd, self.run(request, **options)


Situation = Callable[[Stage], tuple[float, float, float]]


def fresh(stage: Stage) -> tuple[float, float, float]:
    return stage.judged(EvaluationRequest(confirm=False))


def uncounted(stage: Stage) -> tuple[float, float, float]:
    stage.server.counts_tokens = False
    return stage.judged(EvaluationRequest(confirm=False))


def confirmed(stage: Stage) -> tuple[float, float, float]:
    stage.run(BASELINE)
    stage.score = lambda claim: 2
    return stage.judged(EvaluationRequest())


def partly_confirmed(stage: Stage) -> tuple[float, float, float]:
    stage.run(BASELINE)
    stage.score = lambda claim: 1 if "farm" in claim or "beet" in claim else 8
    return stage.judged(EvaluationRequest())


def history(stage: Stage) -> tuple[float, float, float]:
    return stage.judged(EvaluationRequest(history=2, confirm=False))


def half_recorded(stage: Stage) -> tuple[float, float, float]:
    stage.run(TWO_DIMENSIONS, record=True)
    stage.world.store.close()
    stage.world = World.open(stage.world.root, f"sqlite:///{stage.world.root}/new.db")
    return stage.judged(EvaluationRequest(agents=["dwight", "jim"], confirm=False))


def half_in_the_store(stage: Stage) -> tuple[float, float, float]:
    stage.run(TWO_DIMENSIONS)
    return stage.judged(EvaluationRequest(confirm=False))


def one_claim_edited(stage: Stage) -> tuple[float, float, float]:
    stage.run(EvaluationRequest(confirm=False))
    replace_in(stage.world.root / "propositions" / "adherence" / "_default.yaml", "claim: ", "claim: Always, ")
    return stage.judged(EvaluationRequest(confirm=False))


def three_samples(stage: Stage) -> tuple[float, float, float]:
    return stage.judged(EvaluationRequest(agents=["pam"], samples=3, confirm=False))


def generated(stage: Stage) -> tuple[float, float, float]:
    (stage.world.root / "personas" / "creed.yaml").write_text(
        "display_name: Creed\npersona: Creed is strange and brief.\n"
    )
    return stage.judged(EvaluationRequest(agents=["creed"], synthetic=True, confirm=False))


def in_batches(stage: Stage) -> tuple[float, float, float]:
    options = ModelOptions.from_settings(get_settings())
    asked = [item for item in planned_requests(stage.world, EvaluationRequest()) if item.trajectory.entries]
    questions = [question for _, question in questions_of(asked, max_tokens=options.max_tokens)]
    said = estimate([], options=options, store=stage.world.store, also=questions)
    assert said.batch_usd
    assert said.worst_usd is not None
    submit_batch(stage.world.store, options, questions)
    summaries = collect_batches(stage.world.store, options)
    return said.batch_usd, said.worst_usd, sum(item.usd or 0.0 for item in summaries)


SITUATIONS: dict[str, Situation] = {
    "everything, input counted": fresh,
    "everything, input guessed": uncounted,
    "all falls and is confirmed": confirmed,
    "some falls and is confirmed": partly_confirmed,
    "with two weeks before": history,
    "half is recorded": half_recorded,
    "half is in the store": half_in_the_store,
    "one claim edited": one_claim_edited,
    "three samples": three_samples,
    "conversations generated": generated,
    "message batches": in_batches,
}


def run_estimates() -> None:
    held = 0
    for name, situation in SITUATIONS.items():
        with tempfile.TemporaryDirectory() as folder, MessagesServer() as server:
            root = Path(folder) / "world"
            for part in PARTS:
                shutil.copytree(PROJECT / part, root / part)
            os.environ["ANTHROPIC_BASE_URL"] = server.url
            stage = Stage(World.open(root, f"sqlite:///{folder}/world.db"), server)
            server.handler = lambda call, stage=stage: stage.answer(call)
            usd, most, paid = situation(stage)
            stage.world.store.close()
            assert not server.problems, server.problems[:2]
        held += paid <= most
        print(f"{name:30} said ${usd:.4f}, at most ${most:.4f}; paid ${paid:.4f}", flush=True)
    print(f"at most held {held} of {len(SITUATIONS)}")


def replayed(case: Case, world: Path) -> tuple[int, int, int, bool, bool]:
    """Return a run's exit code, judgments, failures, whether something was judged again, and whether its replay is the same."""
    with TemporaryDirectory() as folder:
        live, again, failed = live_and_replayed(case, world, Path(folder))
    items = [item for agent in live.agents.values() for item in agent.evaluation.dimensions.values()]
    confirmed = any(item.samples > case.samples for item in items)
    return live.exit_code, sum(item.n_expected for item in items), failed, confirmed, told(live) == told(again)


def replays_main(runs: int, failing: float, failing_again: float | None, processes: int) -> int:
    chosen = cases(runs, failing, failing_again)
    with TemporaryDirectory() as folder, ProcessPoolExecutor(processes) as pool:
        world = write_world(Path(folder) / "world")
        found = list(pool.map(partial(replayed, world=world), chosen, chunksize=4))
    codes = Counter(code for code, *_ in found)
    judgments, failed = sum(row[1] for row in found), sum(row[2] for row in found)
    print(f"{runs} live runs, {judgments} judgments, {failed} failed ({failed / judgments:.2%})")
    print(
        f"runs with failed judgments: {sum(row[2] > 0 for row in found)}; judged again: {sum(row[3] for row in found)}"
    )
    print("exit codes: " + ", ".join(f"{code} in {count}" for code, count in sorted(codes.items())))
    same = sum(row[4] for row in found)
    print(f"replays with the same scores, comparison, findings, verdicts and exit code: {same} of {runs}")
    for case in (case for case, row in zip(chosen, found, strict=True) if not row[4]):
        print(f"another: {case}")
    return int(same < runs)


def run_replays() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--failing", type=float, default=0.005, help="Share of judgments that fail.")
    parser.add_argument("--failing-again", type=float, help="Share of those that confirm a fall; default: the same.")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    sys.exit(replays_main(options.runs, options.failing, options.failing_again, options.processes))


COMMANDS = {"estimates": run_estimates, "replays": run_replays}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"{__doc__}\nname one of {', '.join(COMMANDS)}")
    sys.exit(COMMANDS[sys.argv.pop(1)]())
