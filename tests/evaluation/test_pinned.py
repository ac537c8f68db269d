"""What `evaluate` says of the sample world, number for number, as it is pinned beside this file.

Meant to be something else? ``PIN=1 pytest`` writes it anew.
"""

import json
import os
from pathlib import Path
from typing import Any

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.reporting.render import to_json
from persona_pipeline.reporting.statistics import gather
from persona_pipeline.world import World

PINNED = Path(__file__).with_name("sample_world.json")


def test_the_sample_world_is_said_of_what_always_was(sample_root: Path) -> None:
    world = World.open(sample_root, f"sqlite:///{sample_root}/pinned.db")
    run = run_evaluation(world, OpenedJudge(RecordedBackend(sample_root / "recordings")), EvaluationRequest(history=3))
    said = _pinned(json.loads(json.dumps(to_json(gather(world, run.report)), default=str)))
    if os.environ.get("PIN"):
        PINNED.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert said == json.loads(PINNED.read_text(encoding="utf-8"))


def _pinned(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report without each claim's words, and with no version."""
    return {
        "exit_code": report["exit_code"],
        "findings": report["findings"],
        "provenance": {name: value for name, value in report["provenance"].items() if name != "version"},
        "history": report["statistics"].get("history"),
        "agents": [
            {
                **{name: agent[name] for name in ("run_id", "overall", "sample_size", "provenance", "comparison")},
                "findings": [[finding["kind"], finding["message"]] for finding in agent["findings"]],
                "dimensions": {
                    name: {
                        "score": item["score"],
                        "claims": {row["id"]: row["score"] for row in item["propositions"].values()},
                    }
                    for name, item in agent["dimensions"].items()
                },
            }
            for agent in report["agents"].values()
        ],
    }
