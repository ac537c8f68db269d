"""Further work that is killed: evaluate, labels, a suite that goes on, compare, and the two services while they are asked."""

import json
import shutil
import sqlite3
from collections.abc import Sequence
from functools import partial

from tests.support.waiting import PATIENCE
from tests.trust_boundary.interruptions import PROJECT, WHEN, Scene, Task, cli

# A service with whoever asks it, in one process that is killed whole. What was answered is noted, and not asked again.
SERVED = """
import os, sys, json
from pathlib import Path
from persona_pipeline.world import World
from tests.support.serving import serving
from tests.support.otlp_relay import post
what, root = sys.argv[1], Path(sys.argv[2])
world = World.open(root)
world.sync()
noted = root / "answered.txt"
known = set(noted.read_text().split()) if noted.exists() else set()
if what == "collect":
    from persona_pipeline.importing.traces.collector import create_app
    from tests.support.spans import agent, chat, request
    app = create_app(world)
    def body(number):
        at = 2 * number + 1
        asked = [f"question {number}"]
        spans = chat(at + 1, asked, f"answer {number}", parent=at), agent(at, "jim", f"c{number}")
        return "/v1/traces", request(*spans).SerializeToString()
else:
    from persona_pipeline.corrections.configuration import write_config
    from persona_pipeline.corrections.service.app import create_app
    from tests.corrections.support import GATED, TextBackend
    write_config(world.store, "jim", GATED)
    app = create_app(world, TextBackend())
    def body(number):
        asked = {"agent_id": "jim", "text": "fine 8", "channel": f"c{number}", "action_id": f"a{number}"}
        return "/v1/gate", json.dumps(asked).encode()
from tests.trust_boundary.interrupted_work import ASKED
with serving(app) as url, noted.open("a") as file:
    for number in range(ASKED):
        if str(number) in known:
            continue
        path, content = body(number)
        headers = {"content-type": "application/json"} if path == "/v1/gate" else {}
        status, _, said = post(url + path, content, headers)
        assert status == 200, (status, said)
        if path == "/v1/gate":
            assert json.loads(said)["text"] == "fine 8"
        file.write(f"{number}\\n")
        file.flush()
"""
# As the command line ends where the machine fails.
GUARDED = """
import sys
from persona_pipeline.cli import machine_failure
try:
    exec(compile(sys.argv[3], "served", "exec"), {})
except AssertionError:
    sys.exit(3)
except Exception as error:
    if machine_failure(error) is None:
        raise
    sys.exit(3)
"""
ASKED = 150


def _rows(scene: Scene, query: str) -> list[tuple]:
    with sqlite3.connect(scene.store) as connection:
        return connection.execute(query).fetchall()


def _spoken(scene: Scene) -> object:
    return _rows(
        scene, "SELECT text, count(*) FROM run_messages WHERE text LIKE 'answer %' GROUP BY text ORDER BY text"
    )


def _checked(scene: Scene) -> object:
    """Every check that was answered; one whose answer was not noted may stand there too, under the id it is asked with again."""
    found = _rows(scene, "SELECT DISTINCT action_id FROM gate_checks")
    more = _rows(
        scene, "SELECT action_id, attempt_number, score FROM gate_checks WHERE score IS NULL OR attempt_number != 1"
    )
    return len(found), more


def _evaluated(scene: Scene) -> object:
    found = (
        "SELECT DISTINCT agent_id, window_end, round(overall_score, 6) FROM evaluation_runs WHERE status = 'completed'"
    )
    return sorted(_rows(scene, found)), _rows(scene, "SELECT count(*) - count(DISTINCT id) FROM run_messages")


def _take_labels(scene: Scene) -> None:
    shutil.copytree(PROJECT / "labels", scene.root / "labels")
    scene.start(Task("", cli("labels", "export", "--format", "jsonl", "--output", "given.jsonl"), lambda _: None)).wait(
        PATIENCE
    )
    shutil.rmtree(scene.root / "labels")


def _labels(scene: Scene) -> object:
    lines = [
        line
        for path in sorted((scene.root / "labels").glob("*.jsonl"))
        for line in path.read_text("utf-8").splitlines()
    ]
    return len(lines), len({json.dumps(json.loads(line), sort_keys=True) for line in lines})


def _resumed(scene: Scene) -> object:
    rows = [json.loads(line) for line in (scene.root / "rows.jsonl").read_text("utf-8").splitlines()]
    return sorted(str(row.get("test") or row.get("test_id") or row.get("id")) for row in rows)


def _other_world(scene: Scene) -> None:
    other = scene.root / "other"
    for name in ("personas", "propositions", "messages"):
        shutil.copytree(scene.root / name, other / name)
    path = other / "personas" / "jim.yaml"
    path.write_text(path.read_text("utf-8").replace("Jim", "James"), "utf-8")


def _service(what: str, scene: Scene) -> Sequence[str]:
    return [GUARDED, what, str(scene.root), SERVED]


COMPARE = ("--agents", "jim", "--dimensions", "adherence", "--scenes", "8", "--judge", "anthropic", "--as-of", WHEN[1])
MORE = (
    Task("evaluate", cli("evaluate", "--judge", "recorded", *WHEN), _evaluated, (0, 1, 3)),
    Task("labels", cli("labels", "import", "given.jsonl"), _labels, (0,), _take_labels),
    Task(
        "suite resume",
        cli(
            "suite",
            "run",
            "suites/order-desk.eval.yaml",
            "--allow-code",
            "--save",
            "--output",
            "rows.jsonl",
            "--resume",
        ),
        _resumed,
    ),
    Task(
        "compare",
        cli("compare", ".", "other", *COMPARE),
        lambda scene: _rows(scene, "SELECT count(*), count(DISTINCT key) FROM judgments"),
        (0, 1, 3),
        _other_world,
    ),
    Task("collect", partial(_service, "collect"), _spoken),
    Task("corrections", partial(_service, "corrections"), _checked),
)
