"""Green means held: what once was green though nobody could tell, a case a row."""

import json
import random
import re
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.testing.messages_server import Call, MessagesServer, Reply, message, verdicts
from persona_pipeline.testing.worlds import WorldBuilder
from tests.support.command_line import Cli, Done, in_process

DRIFTED = ("evaluate", "--agents", "michael")


@pytest.fixture
def cli(sample_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return in_process(sample_root, monkeypatch, capsys)


def report(done: Done) -> dict[str, Any]:
    return json.loads(done.stdout)


def edit_json(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    edit(data)
    path.write_text(json.dumps(data), encoding="utf-8")


@pytest.mark.xfail(strict=True, reason="issue 18: a judge that never reads is found out by swapped transcripts")
def test_a_judge_that_never_reads_decides_nothing(cli: Cli, sample_root: Path) -> None:
    from persona_pipeline.judging.recordings import load_recordings, write_recordings

    dice = random.Random(1)
    recordings = load_recordings(sample_root / "recordings").values()
    inverted = {"generic-assistant", "michael-corporate-boilerplate", "later-turned-generic", "interchangeable-voice"}
    for item in recordings:
        if item.score is not None:
            score = dice.choice((0, 1, 2) if item.proposition_id in inverted else (7, 8, 9))
            object.__setattr__(item, "score", score)
    write_recordings(sample_root / "recordings", recordings)
    assert cli("evaluate", "--agents", "michael", "--dimensions", "adherence").returncode == 3


def test_no_neighbour_hides_a_collapse(cli: Cli, sample_root: Path) -> None:
    def noisy(data: dict[str, Any]) -> None:
        for known in data["provenance"]["dimensions"].values():
            known |= {"windows": 2, "between": 1.5, "below": 1.5}
            for claim in known.get("claims", {}).values():
                claim |= {"windows": 2, "between": 4.5, "below": 4.5}

    edit_json(sample_root / "baselines" / "dwight.json", noisy)
    done = cli("evaluate")
    assert done.returncode in (1, 3)
    assert report(done)["agents"]["michael"]["conclusion"]["verdict"] in ("fell", "cannot_tell")


def test_a_drop_nobody_can_explain_is_not_green_however_noisy_its_own_golden_file_says_weeks_are(
    cli: Cli, sample_root: Path
) -> None:
    def noisy(data: dict[str, Any]) -> None:
        for known in data["provenance"]["dimensions"].values():
            known |= {"windows": 2, "between": 6.0, "below": 6.0}
            for claim in known.get("claims", {}).values():
                claim |= {"windows": 2, "between": 6.0, "below": 6.0}

    edit_json(sample_root / "baselines" / "michael.json", noisy)
    done = cli("evaluate")
    told = report(done)["agents"]["michael"]
    assert (done.returncode, told["conclusion"]["verdict"]) == (3, "cannot_tell")
    adherence = told["conclusions"]["adherence"]
    assert adherence["verdict"] == "cannot_tell" and "--samples" in adherence["command"]
    assert "3 in character, 1 cannot be told" in done.stderr


def test_invented_labels_excuse_no_fall(cli: Cli, sample_root: Path) -> None:
    recorded = (sample_root / "recordings" / "michael" / "adherence.jsonl").read_text(encoding="utf-8").splitlines()
    recorded += [
        line
        for agent in ("pam", "jim", "dwight")
        for line in (sample_root / "recordings" / agent / "adherence.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    dice, labels = random.Random(3), []
    for line in map(json.loads, recorded):
        if line["score"] is not None:
            shown = {
                name: line[name]
                for name in ("key", "agent_id", "dimension", "proposition_id", "claim", "persona", "trajectory")
            }
            who = {"labeller": "nobody", "labeller_kind": "person", "unscored": None, "note": ""}
            labels.append(shown | who | {"score": dice.randrange(10), "labelled_at": "2026-11-22T10:41:15Z"})
    (sample_root / "labels").mkdir()
    text = "".join(json.dumps(label) + "\n" for label in labels)
    (sample_root / "labels" / "adherence.jsonl").write_text(text, encoding="utf-8")
    done = cli(*DRIFTED, "--dimensions", "adherence")
    told = report(done)
    assert [item["kind"] for item in told["findings"]] == [] and done.returncode == 3
    assert told["conclusion"]["verdict"] == "cannot_tell" and "label" in told["conclusion"]["command"]


def test_a_persona_nobody_ever_judged_is_grey(cli: Cli, sample_root: Path) -> None:
    text = "agent_id: creed\ndisplay_name: Creed Bratton\npersona: You are Creed.\n"
    (sample_root / "personas" / "creed.yaml").write_text(text, encoding="utf-8")
    done = cli("evaluate", "--as-of", "2026-06-14T23:59:59Z")
    told = report(done)
    assert told["headline"] == "4 of 4 judged agents in character; 1 has nothing to judge"
    assert done.returncode == 0 and told["agents"]["creed"]["conclusion"]["verdict"] is None
    assert "- creed" in done.stderr


def test_adherence_that_is_not_recorded_takes_the_overall_score_with_it(cli: Cli, sample_root: Path) -> None:
    (sample_root / "recordings" / "pam" / "adherence.jsonl").unlink()
    done = cli("evaluate", "--agents", "pam")
    assert (done.returncode, report(done)["agents"]["pam"]["overall"]) == (3, None)
    with_threshold = cli("evaluate", "--agents", "pam", "--threshold", "7", "--fail-on", "threshold")
    assert with_threshold.returncode == 3, "a threshold with no overall score"


def test_an_agent_that_falls_silent_cannot_be_told(cli: Cli, sample_root: Path) -> None:
    for path in (sample_root / "messages").glob("*.jsonl"):
        lines = path.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if json.loads(line)["agent_id"] != "pam"]
        path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    done = cli("evaluate", "--agents", "pam")
    assert (done.returncode, report(done)["conclusion"]["verdict"]) == (3, "cannot_tell")


@pytest.mark.xfail(strict=True, reason="issue 17: every option of an evaluation exists through every door")
def test_a_threshold_counts_in_dagster() -> None:
    from persona_pipeline.defs.platform.resources import EvaluationSettings

    assert EvaluationSettings(threshold=7.0).model_dump()["threshold"] == 7.0  # pyright: ignore[reportCallIssue]


# One rule of coverage ------------------------------------------------------------------------------------------------------------

HABITS, SAMPLES = 10, 2


@pytest.fixture
def habits(tmp_path: Path) -> Path:
    """A world of two agents with ten claims, who say something else every week; nothing is recorded."""
    builder = WorldBuilder(tmp_path / "habits")
    for agent_id in ("ann", "bob"):
        builder.persona(agent_id, f"{agent_id.title()} has habits.")
        for day in (2, 3, 9, 10):
            builder.say(agent_id, f"It is the {day}th, says {agent_id}.", at=f"2026-03-{day:02}T09:00:00Z")
    for number in range(HABITS):
        builder.claim("adherence", f"habit-{number}", f"{{{{agent_name}}}} has habit {number}")
    return builder.root


@pytest.fixture
def typed(habits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line on that world."""
    return in_process(habits, monkeypatch, capsys)


def unlucky(*claims: str, reply: Reply | None = None, score: int = 9):
    """Answer 9, of habit 9 ``score``; of each of these claims the first call is refused, or replied to so."""
    left = Counter(claims)

    def answer(call: Call) -> Reply:
        said = verdicts(call.body, lambda claim: score if claim.endswith(" 9") else 9)
        (asked,) = re.findall(r'"claim":"([^"]+)"', call.body["messages"][-1]["content"][0]["text"])
        if left[asked] > 0:
            left[asked] -= 1
            return reply or message(None, stop_reason="refusal")
        return message(json.dumps(said))

    return answer


def told(done: Done) -> dict[str, Any]:
    """What a run says of its agents, without what it cost, who judged, and how much of it was new."""
    data = json.loads(done.stdout)
    said = json.loads(json.dumps(data["agents"]))
    for agent in said.values():
        for name in ("run_id", "usage"):
            agent.pop(name)
        agent["provenance"].pop("judge")
        for item in agent["dimensions"].values():
            item.pop("usage")
            # That it is recorded is the one difference.
            item.pop("min_coverage", None)
    return {"agents": said, "findings": data["findings"], "least": data["provenance"]["min_coverage"]}


def replayed(typed: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *options: str) -> Done:
    """The run of this week again, from its recordings and with a new store."""
    stores = len([*tmp_path.glob("replay-*.db")])
    monkeypatch.setenv("PERSONA_DATABASE_URL", f"sqlite:///{tmp_path}/replay-{stores}.db")
    done = typed("evaluate", "--samples", str(SAMPLES), *options)
    monkeypatch.delenv("PERSONA_DATABASE_URL")
    return done


LIVE = ("--judge", "anthropic", "--record", "--samples", str(SAMPLES))


def test_a_live_run_with_failed_judgments_and_its_replay_say_the_same(
    typed: Cli, server: MessagesServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.handler = unlucky(score=1)
    assert typed("baseline", *LIVE, "--as-of", "2026-03-04T00:00:00Z").returncode == 0
    server.handler = unlucky("Ann has habit 9", "Bob has habit 0", score=1)
    live = typed("evaluate", *LIVE)
    assert live.returncode == 0, live.stderr
    dimensions = {agent: item["dimensions"]["adherence"] for agent, item in told(live)["agents"].items()}
    assert {(item["n_scored"], item["n_expected"]) for item in dimensions.values()} == {(19, 20)}
    assert dimensions["ann"]["score"] == pytest.approx((9 * 9 + 1) / 10)
    asked = len(server.calls)
    again = replayed(typed, monkeypatch, tmp_path)
    assert len(server.calls) == asked
    assert (again.returncode, told(again)) == (0, told(live))
    assert replayed(typed, monkeypatch, tmp_path, "--min-coverage", "1").returncode == 3


def test_a_live_run_that_could_not_be_judged_and_its_replay_say_the_same(
    typed: Cli, server: MessagesServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.handler = unlucky()
    typed("baseline", *LIVE, "--as-of", "2026-03-04T00:00:00Z")
    server.handler = unlucky(*(f"Ann has habit {number}" for number in range(3)), reply=message("Rather good!"))
    live = typed("evaluate", *LIVE)
    again = replayed(typed, monkeypatch, tmp_path)
    assert (live.returncode, again.returncode) == (3, 3)
    assert told(again) == told(live)
    assert "3 invalid_output" in json.dumps(told(again))


def test_a_stale_recording_fails_as_before_whatever_failed_beside_it(
    habits: Path, typed: Cli, server: MessagesServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.handler = unlucky()
    typed("baseline", *LIVE)
    server.handler = unlucky("Bob has habit 0")
    assert typed("evaluate", *LIVE, "--fresh").returncode == 0
    assert replayed(typed, monkeypatch, tmp_path).returncode == 0
    path = habits / "propositions" / "adherence" / "_default.yaml"
    path.write_text(path.read_text("utf-8").replace("has habit 5", "had habit 5"), "utf-8")
    stale = replayed(typed, monkeypatch, tmp_path)
    assert stale.returncode == 3
    assert "unrecorded" in json.dumps(told(stale)["findings"] + [told(stale)["agents"]["bob"]["findings"]])


@pytest.mark.parametrize(("noted", "failing", "code"), [(0.0, 1, 0), (0.0, 3, 3), (None, 1, 3), (0.99, 1, 3)])
def test_no_line_asks_for_less_coverage_than_a_live_run_would(
    noted: float | None,
    failing: int,
    code: int,
    habits: Path,
    typed: Cli,
    server: MessagesServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    server.handler = unlucky()
    typed("baseline", *LIVE)
    path = habits / "recordings" / "ann" / "adherence.jsonl"
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for line in lines[:failing]:
        line |= {"score": None, "unscored": "timeout", "detail": "", "min_coverage": noted}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    assert replayed(typed, monkeypatch, tmp_path).returncode == code


def test_recording_ends_with_what_is_missing_and_what_filling_it_costs(
    typed: Cli, server: MessagesServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.handler = unlucky()
    assert "failed" not in typed("baseline", *LIVE, "--as-of", "2026-03-04T00:00:00Z").stderr
    server.handler = unlucky("Ann has habit 3", "Ann has habit 3", "Bob has habit 7")
    *_, last = typed("evaluate", *LIVE, "--fresh").stderr.strip().splitlines()
    found = re.fullmatch(r"3 of 40 judgments failed \(3 refusal\); `(.+)` asks them again, about \$0\.\d\d", last)
    assert found, last
    assert found[1] == (
        "persona-pipeline evaluate --samples 2 --record --as-of 2026-03-10T09:00:00+00:00 --judge anthropic"
    )
    asked = len(server.calls)
    filled = typed(*shlex.split(found[1])[1:])
    assert (filled.returncode, len(server.calls) - asked) == (0, 3)
    assert "failed" not in filled.stderr
    assert replayed(typed, monkeypatch, tmp_path, "--min-coverage", "1").returncode == 0
