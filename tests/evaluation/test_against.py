"""A pull request by its base and by itself: what is said of the changed files that decide, without a judge."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.against import judged_against
from persona_pipeline.guard.report import Finding, RunReport
from persona_pipeline.world import World
from tests.support.pull_requests import git

OUGHT = "baselines/ann.json"
TWO = "baselines/anchors.jsonl"


def by_files(world: World, request: EvaluationRequest) -> RunReport:
    """Say that ann's adherence dropped where her golden file asks for much and nothing says that the judge changed."""
    place = world.decided_by
    assert place is not None and request.against is None and not request.accept_baseline
    golden, changes = place / OUGHT, place / TWO
    much = golden.exists() and json.loads(golden.read_text("utf-8"))["asks"] == "much"
    excused = changes.exists() and json.loads(changes.read_text("utf-8"))["excuses"]
    fell = much and not excused
    finding = Finding(kind="regression", exit_code=1, message="dropped", agent_id="ann", dimension="adherence")
    return RunReport(findings=[finding] if fell else [], exit_code=int(fell))


def put(root: Path, files: Mapping[str, object]) -> None:
    for path, data in files.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(json.dumps(data), encoding="utf-8")


MUCH, LITTLE = {OUGHT: {"asks": "much"}}, {OUGHT: {"asks": "little"}}
EXCUSED, NOT_EXCUSED = {TWO: {"excuses": True}}, {TWO: {"excuses": False}}
OTHERS = [f"baselines/{name}.json" for name in ("aaa", "bob", "cid")]
GREEN = "green only because of baselines/ann.json: by HEAD, ann drifted (adherence)"
RED = "red as soon as baselines/ann.json is merged: by it, ann drifted (adherence)"


@pytest.mark.parametrize(
    ("base", "own", "accepts", "code", "told"),
    [
        pytest.param(MUCH, MUCH, False, 1, [], id="nothing was changed"),
        pytest.param(MUCH, LITTLE, False, 3, [(GREEN, 3, True)], id="a file of the change hides a drop"),
        pytest.param(MUCH, LITTLE, True, 0, [(GREEN, 0, False)], id="and is accepted"),
        pytest.param(LITTLE, MUCH, False, 0, [(RED, 0, False)], id="a file of the change shows a drop"),
        pytest.param(
            LITTLE, MUCH, True, 1, [(RED, 0, False)], id="and is accepted, so that it counts",
        ),
        pytest.param(
            LITTLE | EXCUSED, MUCH | NOT_EXCUSED, False, 0,
            [(f"red as soon as {OUGHT}, {TWO} are merged: by it, ann drifted (adherence)", 0, False)],
            id="two files together",
        ),
        pytest.param(
            MUCH | NOT_EXCUSED, LITTLE | EXCUSED, False, 3,
            [(f"green only because of {OUGHT}, {TWO}: by HEAD, ann drifted (adherence)", 3, True)],
            id="either is enough: both are named",
        ),
        pytest.param(
            MUCH | dict.fromkeys(OTHERS, 1), LITTLE | dict.fromkeys(OTHERS, 2), True, 0,
            [("green only because of baselines/ann.json, baselines/aaa.json, baselines/bob.json and 1 more: "
              "by HEAD, ann drifted (adherence)", 0, False)],
            id="the agent's own golden file is named first",
        ),
        pytest.param({}, MUCH, False, 1, None, id="a golden file of a new agent counts"),
    ],
)  # fmt: skip
def test_what_the_changes_own_files_decide_is_told(
    small_world: World,
    base: dict[str, object],
    own: dict[str, object],
    accepts: bool,
    code: int,
    told: list[tuple[str, int, bool]] | None,
) -> None:
    root = small_world.root
    git(root, "init", "--quiet")
    put(root, base)
    git(root, "add", "-A")
    git(root, "commit", "--quiet", "-m", "the base")
    put(root, own)
    report = judged_against(small_world, EvaluationRequest(against="HEAD", accept_baseline=accepts), by_files)
    said = [(item.message, item.exit_code, bool(item.remedy)) for item in report.findings if item.kind == "base"]
    assert (report.exit_code, said) == (code, told or [])
    new = [item.message for item in report.findings if item.kind == "new_baseline"]
    assert new == (["compared with baselines of this change, for HEAD has none of them: ann"] if told is None else [])
    known = report.provenance["against"]
    assert (known["base"], known["baselines_accepted"]) == (
        "HEAD",
        sorted(path for path in own if accepts and path.startswith("baselines/")),
    )


def test_a_run_by_a_base_writes_no_baseline_and_needs_the_base(small_world: World) -> None:
    with pytest.raises(ConfigError, match="writes no baselines"):
        judged_against(small_world, EvaluationRequest(against="HEAD", update_baseline=True), by_files)
    git(small_world.root, "init", "--quiet")
    with pytest.raises(ConfigError, match="--against main: there is no such commit here; a shallow clone"):
        judged_against(small_world, EvaluationRequest(against="main"), by_files)
