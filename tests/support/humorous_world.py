"""Take a world with a sixth dimension through everything, in a process in which it is registered; prints JSON."""

import asyncio
import json
import sys
from pathlib import Path

import persona_pipeline as pp
from persona_pipeline.definitions import defs
from persona_pipeline.evaluation.calibrate import calibrate_world
from persona_pipeline.guard.labels.files import Label
from persona_pipeline.judging.recordings.writing import RecordingWriter
from persona_pipeline.lab.claims.drafts import plan_claims
from persona_pipeline.reporting.render import render
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.testing.worlds import write_small_world
from tests.support.judged import judged_population
from tests.support.reports import report_text

root = write_small_world(Path(sys.argv[1]))
world = pp.load_world(root)
judge = ScriptedJudge(lambda request: 8)
before = pp.take_baselines(world, judge=judge)
funny = before["ann"].evaluation.dimensions["humour"]
requests = [request for request in judge.asked if request.dimension == "humour"]
RecordingWriter(root / "recordings").record(requests, asyncio.run(judge.judge(requests)))
dull = ScriptedJudge(lambda request: 0 if request.dimension == "humour" else 8)
now = pp.evaluate(world, judge=dull, dimensions=["humour"])
(judged, *_) = judged_population(world, ["ann"], ["humour"])
shown = json.loads((root / "recordings" / "ann" / "humour.jsonl").read_text(encoding="utf-8").splitlines()[0])
names = ("key", "agent_id", "dimension", "proposition_id", "claim", "persona", "trajectory")
who = {"labeller": "eva", "labeller_kind": "person", "score": 7, "labelled_at": "2026-11-22T10:41:15Z"}
label = Label.model_validate({name: shown[name] for name in names} | who)
(root / "labels").mkdir()
(root / "labels" / "humour.jsonl").write_text(label.to_line(), encoding="utf-8")
told = {
    "score": funny.score,
    "fell": [found.kind for found in now["ann"].findings],
    "verdict": now["ann"].conclusions["humour"].verdict,
    "population": judged.request.dimension,
    "unused": calibrate_world(world).unused,
    "draft": "what it jokes about" in plan_claims(world, "ann", "humour").question.ask,
    "table": "humour" in report_text(now.report),
    "assets": sorted(
        key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys() if "humour" in str(key)
    ),
    "reports": {name: "umour" in render(now.report, name) for name in ("json", "markdown", "html", "junit")},
}
print(json.dumps(told))
