"""Green means held: what once was green though nobody could tell, a case a row."""

import json
import os
import random
import re
import shlex
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.settings import get_settings
from persona_pipeline.testing.worlds import WorldBuilder, write_small_world
from persona_pipeline.world import World
from tests.suites.support import write
from tests.support.command_line import Cli, Done, in_process
from tests.support.messages_server import Call, MessagesServer, Reply, message, verdicts
from tests.support.worlds import edit_json, replace_in

DRIFTED = ("evaluate", "--agents", "michael")


def report(done: Done) -> dict[str, Any]:
    return json.loads(done.stdout)


def test_a_judge_that_never_reads_decides_nothing(cli: Cli, sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from persona_pipeline.judging.recordings.replay import load_recordings
    from persona_pipeline.judging.recordings.writing import RecordingWriter

    dice = random.Random(1)
    # What suites keep stands in files of its own.
    shutil.rmtree(sample_root / "recordings" / "suites")
    recordings = load_recordings(sample_root / "recordings", None).values()
    inverted = {"generic-assistant", "michael-corporate-boilerplate", "later-turned-generic", "interchangeable-voice"}
    for item in recordings:
        if item.score is not None:
            score = dice.choice((0, 1, 2) if item.proposition_id in inverted else (7, 8, 9))
            object.__setattr__(item, "score", score)
    RecordingWriter(sample_root / "recordings").write(recordings)
    for path in (sample_root / "recordings" / "messages").iterdir():
        # To whatever it is asked of messages it says that they are in character.
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for line in lines:
            line["answer"] = {"verdicts": [item | {"verdict": "in"} for item in line["answer"]["verdicts"]], "why": []}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    monkeypatch.setenv("PERSONA_MESSAGE_VERDICTS", "400")
    monkeypatch.setenv("PERSONA_ANCHORS", "20")
    done = cli("evaluate", "--agents", "michael", "--dimensions", "adherence")
    assert done.returncode == 3 and "10 of 20" in done.stderr


def varying(between: float, *, of_claims: float) -> Callable[[dict[str, Any]], None]:
    """Return the edit of a golden file that says its two windows differ by so much."""

    def edit(data: dict[str, Any]) -> None:
        for known in data["provenance"]["dimensions"].values():
            known |= {"windows": 2, "between": between, "below": between}
            for claim in known.get("claims", {}).values():
                claim |= {"windows": 2, "between": of_claims, "below": of_claims}

    return edit


def test_no_neighbour_hides_a_collapse(cli: Cli, sample_root: Path) -> None:
    edit_json(sample_root / "baselines" / "dwight.json", varying(1.5, of_claims=4.5))
    done = cli("evaluate")
    assert done.returncode in (1, 3)
    assert report(done)["agents"]["michael"]["conclusion"]["verdict"] in ("fell", "cannot_tell")


def test_a_drop_nobody_can_explain_is_not_green_however_noisy_its_own_golden_file_says_weeks_are(
    cli: Cli, sample_root: Path
) -> None:
    edit_json(sample_root / "baselines" / "michael.json", varying(6.0, of_claims=6.0))
    done = cli("evaluate")
    told = report(done)["agents"]["michael"]
    assert (done.returncode, told["conclusion"]["verdict"]) == (3, "cannot_tell")
    adherence = told["conclusions"]["adherence"]
    assert adherence["verdict"] == "cannot_tell" and "--samples" in adherence["command"]
    assert "4 cannot be told" in done.stderr


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
    assert [item["kind"] for item in told["findings"]] == [] and done.returncode == 1
    assert told["conclusion"]["verdict"] == "fell"


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
    with_threshold = cli("evaluate", "--agents", "pam", "--threshold", "7", "--only-fail-on", "threshold")
    assert with_threshold.returncode == 3, "a threshold with no overall score"


def test_an_agent_that_falls_silent_cannot_be_told(cli: Cli, sample_root: Path) -> None:
    for path in (sample_root / "messages").glob("*.jsonl"):
        lines = path.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if json.loads(line)["agent_id"] != "pam"]
        path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    done = cli("evaluate", "--agents", "pam")
    assert (done.returncode, report(done)["conclusion"]["verdict"]) == (3, "cannot_tell")


def test_a_threshold_counts_in_dagster() -> None:
    from persona_pipeline.defs.platform.resources import EvaluationSettings

    assert EvaluationSettings(threshold=7.0).model_dump()["threshold"] == 7.0  # pyright: ignore[reportCallIssue]


# What a suite's verdict rests on ------------------------------------------------------------------------------------------------

ANSWER = "import words\nprint(words.said())\n"
GRADE = 'import json, rules\nprint(json.dumps({"score": rules.SCORE}))\n'
PROMPT = 'print("Is {{ answer }} polite?")\n'
AGGREGATE = 'import json\nprint(json.dumps({"score": 1.0}))\n'
FILES = {
    "targets.yaml": """
targets:
  - {name: default, provider: mock, response: hello}
  - {name: other, provider: mock, response: hello}
  - {name: program, provider: cli, command: [python3, agent/answer.py, "{PROMPT}"]}
  - {name: recorded, provider: replay, path: answers/recorded.jsonl}
""",
    "answers/recorded.jsonl": '{"id": "t", "answer": "hello"}\n{"id": "u", "answer": "hello"}\n',
    "answers/pair.jsonl": '{"id": "t", "answer": "hello"}\n',
    "agent/answer.py": ANSWER,
    "agent/words.py": 'def said():\n    return "hello"\n',
    "suites/judges/grade.py": GRADE,
    "suites/judges/rules.py": "SCORE = 1.0\n",
    "suites/judges/prompt.py": PROMPT,
    "suites/judges/sum.py": AGGREGATE,
    "suites/judges/polite.md": "Is {{ answer }} polite?\n",
    "suites/hooks/setup.py": "pass\n",
    "suites/template/a.txt": "a\n",
    "propositions/adherence/bob.yaml": json.dumps(
        {"dimension": "adherence", "propositions": [{"id": "machines", "claim": "{{agent_name}} loves machines"}]}
    ),
    ".gitignore": ".persona/\nr.jsonl\n__pycache__/\n",
}
GOOD = json.dumps({"reasoning": "It is.", "hits": [], "misses": [], "score": 1.0})


@dataclass
class Desk:
    """A world in a repository with a suite of two tests, ``t`` as a row has it and ``u`` that rests on little."""

    root: Path
    cli: Cli
    judge: tuple[str, ...] = ()

    def suite(self, test: str, head: str = "") -> None:
        plain = "{id: u, input: hi, assert: [{type: contains, value: hello}]}"
        write(self.root, {"suites/s.eval.yaml": f"{head}tests:\n  - {{id: t, input: hi, {test}}}\n  - {plain}\n"})

    def run(self, *options: str) -> Done:
        return self.cli("suite", "run", str(self.root / "suites"), "--allow-code", *self.judge, *options)

    def rows(self, *options: str) -> list[dict[str, Any]]:
        """Run, and return every row that was written to the file of results so far."""
        done = self.run("--output", str(self.root / "r.jsonl"), *options)
        assert done.returncode in (0, 1, 3), done.stderr
        return [json.loads(line) for line in (self.root / "r.jsonl").read_text(encoding="utf-8").splitlines()]

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *identity, *arguments], cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout

    def commit(self) -> None:
        if not (self.root / ".git").exists():
            self.git("init", "-q")
        self.git("add", "-A")
        self.git("commit", "-qm", "as it stands")


@pytest.fixture
def desk(
    small_root: Path,
    server: MessagesServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Desk]:
    server.always(message(GOOD))
    write(small_root, FILES)
    (small_root / ".git").mkdir()
    yield Desk(small_root, in_process(small_root, monkeypatch, capsys))
    server.always(None)


@dataclass(frozen=True)
class Row:
    """What a test is, and what is done to what it rests on.

    Attributes:
        edit: a file, and what is replaced in it by what; with nothing to replace: what it is written with.
        place: what the reason for running names.
    """

    id: str
    test: str
    edit: tuple[str, str, str] | None = None
    head: str = ""
    judge: bool = False
    claims: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    place: str | None = None
    in_git: bool = True


LLM = "criteria: c, assert: [{type: llm_judge, prompt: ./judges/polite.md}]"
CLAIMS = "assert: [{type: propositions, agent: bob}]"
DRIFT = "assert: [{type: persona_drift, agent: bob}]"
CODE = "assert: [{type: code_judge, script: [python3, judges/grade.py]}]"
SCRIPTED = "criteria: c, assert: [{type: llm_judge, prompt: {script: [python3, judges/prompt.py]}}]"
SUMMED = "assert: [{type: composite, assert: [{type: is_json}], aggregator: {type: code_judge, path: [python3, judges/sum.py]}}]"
HOOKED = "workspace: {template: ./template, setup: {script: [python3, hooks/setup.py]}}, assert: [{type: contains, value: hello}]"
ASKED = "execution: {target: %s}, assert: [{type: contains, value: hello}]"
PAIR = "assert: [{type: pairwise, responses: ../answers/pair.jsonl}]"
OWN_CLAIM = ("propositions/adherence/bob.yaml", "loves machines", "hates machines")

OTHER = "other, provider: mock, response: hello"

ROWS = [
    Row("the judge's prompt", LLM, ("suites/judges/polite.md", "polite", "rude"), judge=True),
    Row("the judge's model", LLM, judge=True, environment={"PERSONA_JUDGE_MODEL": "claude-sonnet-5-5"}, in_git=False),
    Row("how hard the judge thinks", LLM, judge=True, environment={"PERSONA_JUDGE_EFFORT": "high"}, in_git=False),
    Row("the judge", LLM, judge=True, options=("--judge", "recorded"), in_git=False),
    Row("a claim", CLAIMS, OWN_CLAIM, judge=True, claims=True),
    Row(
        "everybody's claims",
        CLAIMS,
        ("propositions/adherence/_default.yaml", "interesting", "dull"),
        judge=True,
        claims=True,
    ),
    Row("a persona", CLAIMS, ("personas/bob.yaml", "loves", "hates"), judge=True, claims=True),
    Row("a code_judge's program", CODE, ("suites/judges/grade.py", "import json,", "import json as json,")),
    Row("what a code_judge's program imports", CODE, ("suites/judges/rules.py", "1.0", "0.0")),
    Row("a prompt's program", SCRIPTED, ("suites/judges/prompt.py", "polite", "rude"), judge=True),
    Row("an aggregator's program", SUMMED, ("suites/judges/sum.py", "1.0", "0.0")),
    Row("a hook", HOOKED, ("suites/hooks/setup.py", "pass", "raise SystemExit(1)")),
    Row("a workspace", HOOKED, ("suites/template/a.txt", "a", "b")),
    Row("the agent's own program", ASKED % "program", ("agent/answer.py", "words.said()", "'go away'")),
    Row("what the agent's own program imports", ASKED % "program", ("agent/words.py", "hello", "go away")),
    Row("recorded answers", ASKED % "recorded", ("answers/recorded.jsonl", "hello", "go away")),
    Row("the answers that it is compared with", PAIR, ("answers/pair.jsonl", "hello", "hallo")),
    Row("the targets above", ASKED % "other", ("targets.yaml", OTHER, OTHER.replace("hello", "no"))),
]  # fmt: skip


def arranged(desk: Desk, row: Row, server: MessagesServer) -> None:
    desk.suite(row.test, row.head)
    desk.judge = ("--judge", "anthropic") if row.judge else ()
    if row.claims:
        server.always(None)


def mutated(desk: Desk, row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in row.environment.items():
        monkeypatch.setenv(name, value)
    get_settings.cache_clear()
    if row.edit is not None:
        path, old, new = row.edit
        replace_in(desk.root / path, old, new)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_run_that_goes_on_believes_no_result_of_what_has_changed(
    desk: Desk, row: Row, server: MessagesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    arranged(desk, row, server)
    first = desk.rows()
    assert [item["test_id"] for item in first] == ["t", "u"] and "error" not in first[0], first[0]
    assert len(desk.rows("--resume")) == 2, "nothing changed: both results stand"
    mutated(desk, row, monkeypatch)
    again = desk.rows("--resume", *row.options)
    assert [item["test_id"] for item in again] == ["t", "u", "t"], "what changed runs again, and nothing else does"
    assert again[2]["digest"] != again[0]["digest"]


CACHED = [row for row in ROWS if row.id in ("the agent's own program", "what the agent's own program imports")]


@pytest.mark.parametrize("row", CACHED, ids=lambda row: row.id)
def test_a_kept_answer_is_none_of_a_program_that_has_changed(
    desk: Desk, row: Row, server: MessagesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    arranged(desk, row, server)
    assert [item.get("cached") for item in desk.rows("--cache")] == [None, None]
    assert [item.get("cached") for item in desk.rows("--cache")] == [True, True]
    mutated(desk, row, monkeypatch)
    assert [(item.get("cached"), item["verdict"]) for item in desk.rows("--cache")] == [(None, "fail"), (True, "pass")]


CHANGED = [row for row in ROWS if row.in_git] + [
    Row("a baseline", DRIFT, ("baselines/bob.json", "", "{}"), judge=True),
    Row("a new file of claims", CLAIMS, ("propositions/adherence/bob.yml", "", "x"), judge=True),
]


@pytest.mark.parametrize(
    ("row", "committed"),
    [*((row, False) for row in CHANGED), (CHANGED[0], True)],
    ids=[*(row.id for row in CHANGED), "committed"],
)
def test_what_a_change_touches_runs_and_the_reason_is_said(
    desk: Desk, row: Row, committed: bool, server: MessagesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    arranged(desk, row, server)
    (desk.root / ".git").rmdir()
    desk.commit()
    assert row.edit is not None
    path, old, new = row.edit
    if old:
        replace_in(desk.root / path, old, new)
    else:
        write(desk.root, {path: new})
    base = "HEAD"
    if committed:
        desk.commit()
        base = "HEAD^"
    done = desk.run("--changed", base, "--json")
    assert [item["test_id"] for item in json.loads(done.stdout)["tests"]] == ["t"]
    assert f"1 of 2 tests rests on what changed: {path}" in done.stderr


@pytest.mark.parametrize(
    "edit",
    [
        ("targets.yaml", "name: other, provider: mock, response: hello", "name: other, provider: mock, response: no"),
        ("messages/day.jsonl", "", "{}"),
        ("baselines/ann.json", "", "{}"),
        ("README.md", "", "x"),
    ],
    ids=lambda edit: edit[0],
)
def test_a_change_that_nothing_rests_on_is_a_run_of_nothing_and_green(desk: Desk, edit: tuple[str, str, str]) -> None:
    desk.suite(CODE)
    (desk.root / ".git").rmdir()
    desk.commit()
    # Without a record of what the program opens, all of the repository counts.
    desk.run()
    path, old, new = edit
    if old:
        replace_in(desk.root / path, old, new)
    else:
        write(desk.root, {path: new})
    done = desk.run("--changed", "HEAD", "--output", str(desk.root / "r.json"), "--output", str(desk.root / "r.xml"))
    assert (done.returncode, done.stdout) == (0, "nothing to run: 0 of 2 tests rest on what changed\n"), done.stderr
    summary = json.loads((desk.root / "r.json").read_text())["summary"]
    assert (summary["result"], summary["exit_code"]) == (None, 0)
    assert summary["reason"] == "nothing to run: 0 of 2 tests rest on what changed"
    assert ElementTree.parse(desk.root / "r.xml").find(".//error") is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--test-id", "none*"), "no test of s matches --test-id 'none*'"),
        (("--tag", "none"), "no test of s is left by the filters none"),
        (("--shard", "3/3"), "no test is in shard 3/3: there are 2; take fewer shards"),
    ],
)
def test_any_other_run_of_nothing_cannot_tell(desk: Desk, options: tuple[str, ...], says: str) -> None:
    desk.suite(CODE)
    done = desk.run(*options, "--output", str(desk.root / "r.json"), "--output", str(desk.root / "r.xml"))
    assert (done.returncode, f"nothing was run: {says}" in done.stdout) == (3, True), done.stdout + done.stderr
    summary = json.loads((desk.root / "r.json").read_text())["summary"]
    assert (summary["result"], summary["exit_code"], says in summary["reason"]) == ("cannot_tell", 3, True)
    found = ElementTree.parse(desk.root / "r.xml").find(".//error")
    assert found is not None and says in str(found.get("message"))


def test_an_empty_suite_cannot_tell(desk: Desk) -> None:
    write(desk.root, {"suites/s.eval.yaml": "tests: []\n"})
    done = desk.run()
    assert (done.returncode, "nothing was run: s has no tests" in done.stdout) == (3, True)


def test_a_run_whose_tests_are_all_done_reports_them(desk: Desk) -> None:
    desk.suite(CODE)
    desk.rows()
    done = desk.run("--output", str(desk.root / "r.jsonl"), "--resume")
    assert (done.returncode, "2 of 2 passed" in done.stdout) == (0, True)


@pytest.mark.parametrize(
    ("score", "result", "code"),
    [("1.0", "held", 0), ("0.7", "held", 0), ("0.0", "fell", 1), ("None", "cannot_tell", 3)],
)
def test_a_suites_result_in_three_words(desk: Desk, score: str, result: str, code: int) -> None:
    write(desk.root, {"suites/judges/rules.py": f"SCORE = {score}\n"})
    desk.suite(CODE)
    done = desk.run("--json", "--output", str(desk.root / "r.xml"))
    summary = json.loads(done.stdout)["summary"]
    assert (done.returncode, summary["result"], summary["exit_code"]) == (code, result, code)
    tree = ElementTree.parse(desk.root / "r.xml")
    said = {item.get("name"): item.get("value") for item in tree.findall("./testsuite/properties/property")}
    assert said["result"] == result
    digests = [item.get("value") for item in tree.findall("./testsuite/testcase/properties/property[@name='digest']")]
    assert digests == [row["digest"] for row in json.loads(done.stdout)["tests"]] and len(set(digests)) == 2


ENDLESS = "/proc/self/pagemap"


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(f"provider: mock, response: {ENDLESS}", id="a text that is a path"),
        pytest.param(f"provider: cli, command: [{ENDLESS}]", id="a program"),
        pytest.param(f"provider: replay, path: {ENDLESS}", id="recorded answers"),
        pytest.param("provider: mock, response: link", id="a link to the outside"),
        pytest.param("provider: cli, command: [python3, link]", id="a program that is a link"),
        pytest.param("provider: cli, command: [python3, pipe]", id="a program that is no file"),
    ],
)
def test_a_fingerprint_is_taken_of_files_of_the_repository_only(desk: Desk, target: str) -> None:
    from persona_pipeline.suites.running.opening import suite_files
    from persona_pipeline.suites.running.suite_run import look_at_suite

    write(desk.root, {"targets.yaml": f"targets: [{{name: default, {target}}}]\n"})
    (desk.root / "link").symlink_to(ENDLESS)
    os.mkfifo(desk.root / "pipe")
    desk.suite("criteria: c")
    (file,) = suite_files(desk.root)
    first, again = (look_at_suite(desk.root, file, get_settings())[0] for _ in range(2))
    assert first == again


def test_what_cannot_be_hashed_runs_again(desk: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere.py"
    outside.write_text('print("hello")\n', encoding="utf-8")
    replace_in(desk.root / "targets.yaml", "agent/answer.py", str(outside))
    desk.suite(ASKED % "program")
    desk.rows("--cache")
    assert [item["test_id"] for item in desk.rows("--cache", "--resume")] == ["t", "u", "t"]
    assert desk.rows("--cache", "--resume")[-1].get("cached") is None
    (desk.root / ".git").rmdir()
    desk.commit()
    done = desk.run("--changed", "HEAD")
    assert (
        done.returncode,
        f"1 of 2 tests rests on what changed: {outside} (outside the repository)" in done.stdout,
    ) == (0, True)


@pytest.mark.parametrize(
    ("path", "sources"),
    [
        ("labels/adherence.jsonl", {"baseline"}),
        ("lexicons/agreement.de.yaml", {"convergence"}),
        ("labels/notes.txt", set()),
    ],
)
def test_what_an_agents_comparison_rests_on(small_world: World, path: str, sources: set[str]) -> None:
    from persona_pipeline.evaluation.changes import source_versions

    write(small_world.root, {"baselines/bob.json": "{}"})
    before = source_versions(small_world.root, small_world.store).by_source
    write(small_world.root, {path: "x"})
    now = source_versions(small_world.root, small_world.store).by_source
    assert {name for name in now if now[name]["bob"] != before[name]["bob"]} == sources
    # Without a baseline nothing is read in their light.
    assert {name for name in now if now[name]["ann"] != before[name]["ann"]} == sources - {"baseline"}


def test_a_persona_that_is_a_link_to_the_outside_has_a_version(small_world: World) -> None:
    from persona_pipeline.evaluation.changes import source_versions

    (small_world.root / "personas" / "eve.yaml").symlink_to(ENDLESS)
    assert source_versions(small_world.root, small_world.store).by_source["persona"]["eve"] == "unreadable"


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
    accepted = ("--accept", "habit 9 is not theirs")
    assert typed("baseline", *LIVE, *accepted, "--as-of", "2026-03-04T00:00:00Z").returncode == 0
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
    assert "3 invalid output" in json.dumps(told(again))


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
    assert "2 not recorded" in json.dumps(told(stale)["findings"] + [told(stale)["agents"]["bob"]["findings"]])


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
    typed("baseline", *LIVE, "--windows", "1")
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


def in_git(root: Path) -> None:
    """Commit the world: what comes after is the pull request's."""
    from tests.support.pull_requests import git

    git(root, "init", "--quiet")
    git(root, "add", "-A")
    git(root, "commit", "--quiet", "-m", "the base")


def test_a_store_that_a_pull_request_brings_is_not_believed(cli: Cli, sample_root: Path) -> None:
    from tests.support.pull_requests import git

    in_git(sample_root)
    assert cli("evaluate", "--as-of", "2026-06-14T23:59:59Z").returncode == 0
    database = sample_root / ".persona" / "store.db"
    assert database.exists()
    database.write_bytes(b"not a store that anybody should open")
    done = cli(*DRIFTED, "--against", "HEAD")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    git(sample_root, "add", "--force", ".persona/store.db")
    git(sample_root, "commit", "--quiet", "-m", "with a store")
    done = cli("validate")
    assert done.returncode == 2 and ".persona/store.db: is tracked by git" in done.stderr
    assert "stored runs, which no commit should bring" in cli("changes", "HEAD^1").stdout


def test_a_lowered_baseline_is_named_with_old_and_new_numbers(cli: Cli, sample_root: Path) -> None:
    from tests.support.pull_requests import git
    from tests.test_pull_requests import lowered

    in_git(sample_root)

    def forged(data: dict[str, Any]) -> None:
        for known in data["provenance"]["dimensions"].values():
            known["judge_model"] = "another"

    edit_json(sample_root / "baselines" / "michael.json", forged)
    edit_json(sample_root / "baselines" / "pam.json", lowered)
    git(sample_root, "add", "-A")
    git(sample_root, "commit", "--quiet", "-m", "another judge")
    done = cli("evaluate", "--against", "HEAD^1")
    assert done.returncode in (1, 3) and "baselines/michael.json" in done.stderr.split("\n")[0]
    changed = cli("changes", "HEAD^1").stdout.replace("\\", "")
    assert "pam` (adherence 8.19 → 0.4" in changed
    assert "judge_model claude (read for the sample world) → another" in changed
    done = cli("validate")
    assert done.returncode == 2 and "pam.json: says adherence 0.4, and its recordings give 8.191" in done.stderr


AGREEING = {
    "ru": "Совершенно верно, я полностью согласен.",
    "ko": "맞아요, 저도 그렇게 생각해요.",
    "unknown": "Prorsus assentior, praeclara sententia.",
}


def agreement(root: Path, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return the row of agreement after ten lines that only agree."""
    said = [("ann" if n % 2 else "bob", "general", f"2026-03-09T09:{n:02}:00Z", line) for n in range(10)]
    write_small_world(root, said)
    done = in_process(root, monkeypatch, capsys)("evaluate", "--agents", "ann", "--dimensions", "convergence")
    return report(done)["agents"]["ann"]["dimensions"]["convergence"]["propositions"]["_agreement"]


@pytest.mark.parametrize("language", AGREEING)
def test_agreement_without_a_lexicon_of_the_language_is_unscored(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = agreement(tmp_path, AGREEING[language], monkeypatch, capsys)
    named = "this language" if language == "unknown" else language
    assert (row["score"], row["unscored"]) == (None, "not_applicable")
    assert row["detail"] == f"no lexicon for {named}"


def test_a_lexicon_of_the_worlds_own_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lexicons").mkdir()
    (tmp_path / "lexicons/agreement.ru.yaml").write_text(
        "language: ru-RU\nphrases: [совершенно верно]\n", encoding="utf-8"
    )
    assert agreement(tmp_path, AGREEING["ru"], monkeypatch, capsys)["score"] == 0.0


def test_a_lexicon_that_misses_more_than_is_aimed_at_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = agreement(tmp_path, "その通りです、全く同感です。", monkeypatch, capsys)
    assert row["score"] == 0.0
    assert row["reasoning"].endswith("the lexicon for ja finds about 65% of agreeing lines")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A support bot, alone, that turns into a stock assistant."""
    builder = WorldBuilder(tmp_path_factory.mktemp("support"))
    builder.persona("helpdesk", "Helpdesk answers customers of a bicycle shop: short, dry, with part numbers.")
    things = ["the brake pad", "the chain", "your inner tube", "the saddle post", "that derailleur", "the front light"]
    own = ["It is {0}. Swap it, part {1}.", "Bring {0} in before six.", "We have {0} in stock, {1} left. Pick it up.",
           "No. {0} does not fit that frame, take {1}.", "Check {0} first, then call us again."]  # fmt: skip
    stock = ["Thank you for reaching out! I would be happy to help you with {0} today.",
             "I understand how frustrating this can be, and I appreciate your patience regarding {0}.",
             "Certainly! Here are some steps for {0} that you can take. Please let me know if you have any questions.",
             "I hope this helps! Feel free to ask if there is anything else about {0} that I can assist you with."]  # fmt: skip
    dice = random.Random(3)
    for n in range(100):
        text = (own if n < 80 else stock)[dice.randrange(4)].format(dice.choice(things), dice.randrange(10, 99))
        builder.say("helpdesk", text, at=f"2026-03-{1 + n // 4:02}T{9 + n % 4:02}:00:00Z", channel=f"ticket-{n // 2}")
    return builder.root


def watch(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Done:
    return in_process(root, monkeypatch, capsys)("watch", "--once", "--since", "2026-03-20T23:00:00Z")


def test_watch_says_what_it_follows_and_what_it_cannot_see(
    watched: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = watch(watched, monkeypatch, capsys)
    assert (
        "helpdesk: followed since 2026-03-20 23:00 UTC; a change is noticed towards everyday language (en)"
        in done.stdout
    )
    assert "learnt from 80 of its messages in 20 conversations" in done.stdout
    assert "helpdesk: too little history (80 of 100 messages): a smaller change is not seen" in done.stdout
    assert re.search(r"\(en\) after about \d+ messages; learnt", done.stdout)
    assert "helpdesk: a change into another person's voice is not seen" in done.stdout
    assert "20 messages followed" in done.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("나는 오늘 자전거를 고쳤어요, {0}. 체인이 {1}번 빠졌네요!", "write background/ko.txt"),
        ("Lorem qux zibble frotz {0} gnar, plugh {1} xyzzy.", "its language is unknown"),
    ],
)
def test_what_there_is_no_everyday_language_for_says_so_and_names_no_file_that_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    builder = WorldBuilder(tmp_path)
    builder.persona("helpdesk", "Helpdesk repairs bicycles: short, dry, with part numbers.")
    for n in range(80):
        day, hour = 1 + n // 4, 9 + n % 4
        builder.say(
            "helpdesk", text.format(n * 7, n), at=f"2026-03-{day:02}T{hour:02}:00:00Z", channel=f"ticket-{n // 2}"
        )
    done = watch(builder.root, monkeypatch, capsys)
    assert said in done.stdout + done.stderr
    assert "unknown.txt" not in done.stdout + done.stderr


def test_watch_sees_a_support_bot_that_turns_into_a_stock_assistant(
    watched: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = watch(watched, monkeypatch, capsys)
    assert done.returncode == 1
    assert "helpdesk has not sounded like itself since message m81" in done.stdout
    assert (
        "and reads like a support desk's courtesies" in done.stdout or "and reads like a stock assistant" in done.stdout
    )
