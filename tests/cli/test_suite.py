"""``persona-pipeline suite``: output, files, exit codes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.settings import get_settings
from tests.suites.support import write
from tests.support.command_line import ASCII, Done, in_process
from tests.support.pull_requests import git
from tests.support.waiting import PATIENCE

SUITE = """
name: desk
description: What the desk answers
tags: [sales]
tests:
  - {id: a, input: hi, assert: [{type: contains, value: ok, required: true}]}
  - {id: b, input: ho, assert: [{type: contains, value: ok}, {type: is_json, weight: 0}]}
"""


Suite = Callable[..., Done]


@pytest.fixture
def suite(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Suite:
    """Run commands of suites in this process, in the folder of the test."""
    monkeypatch.chdir(folder)
    return partial(in_process(None, monkeypatch, capsys), "suite")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    answers = {"good.json": {"a": "ok", "b": "ok"}, "bad.json": {"a": "no", "b": "ok"}, "half.json": {"a": "ok"}}
    write(tmp_path, {"s.eval.yaml": SUITE} | {name: json.dumps(answer) for name, answer in answers.items()})
    return tmp_path


def test_run_prints_json_and_a_summary(folder: Path, suite: Suite) -> None:
    done = suite("run", "s.eval.yaml", "--responses", "good.json", "--json")
    assert (done.returncode, done.stderr) == (0, "desk: 2 of 2 passed, mean score 1.000. Exit code 0.\n")
    data = json.loads(done.stdout)
    assert data["suite"] == "desk"
    assert [(row["id"], row["score"], row["verdict"]) for row in data["tests"]] == [
        ("a", 1.0, "pass"),
        ("b", 1.0, "pass"),
    ]
    first = data["tests"][0]["results"][0]
    assert first.keys() >= {"name", "type", "score", "weight", "verdict", "hits", "misses", "reasoning"}


def test_what_is_saved_leaves_no_connection_open(folder: Path, suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONA_DATABASE_URL", f"sqlite:///{folder / 'store.db'}")
    get_settings.cache_clear()
    closed: list[Store] = []
    monkeypatch.setattr(Store, "close", lambda store: closed.append(store))
    assert suite("run", "s.eval.yaml", "--responses", "good.json", "--save").returncode == 0
    (store,) = closed
    monkeypatch.undo()
    store.close()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["run", "s.eval.yaml", "--responses", "bad.json"], 1, "fail       0.000  a"),
        (["run", "s.eval.yaml", "--responses", "bad.json", "--test-id", "b"], 0, "1 of 1 passed"),
        (["run", "s.eval.yaml", "--responses", "good.json", "--tag", "sales"], 0, "2 of 2 passed"),
        (["run", "s.eval.yaml", "--responses", "half.json"], 3, "1 not judged"),
        (["run", "s.eval.yaml", "--responses", "none.json"], 2, "none.json: cannot be read"),
        (["run", "s.eval.yaml"], 2, "write a targets.yaml, or grade recorded answers with --responses"),
        (["run", "none.yaml", "--responses", "good.json"], 2, "does not exist"),
        (["run", "s.eval.yaml", "--responses", "good.json", "--judge", "recorder"], 2, "did you mean 'recorded'?"),
        (["run", "s.eval.yaml", "--responses", "good.json", "--record"], 2, "--record needs a live judge"),
        (["run", "s.eval.yaml", "--responses", "good.json", "--output", "x.txt"], 2, "must end in .jsonl"),
        (["run", "s.eval.yaml", "--responses", "good.json", "--resume"], 2, "--resume needs --out"),
        (["run", "s.eval.yaml", "--no-such-option"], 2, "No such option"),
        (["validate", "s.eval.yaml"], 0, "valid, 2 tests"),
        (["show", "s.eval.yaml"], 0, '"name": "desk"'),
        (["explain", "s.eval.yaml"], 0, "gate 0.8"),
        (["compare", "good.json", "bad.json"], 2, "is no row of results"),
    ],
)
def test_exit_codes(suite: Suite, arguments: list[str], code: int, said: str) -> None:
    done = suite(*arguments)
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr


def test_validation_prints_every_problem(folder: Path, suite: Suite) -> None:
    write(
        folder, {"w.yaml": "tests:\n  - {id: a, input: hi, assert: [{type: contians}, {type: is_json, weight: -1}]}\n"}
    )
    done = suite("validate", "s.eval.yaml", "w.yaml", "--json")
    assert done.returncode == 2
    rows = json.loads(done.stdout)
    assert [row["valid"] for row in rows] == [True, False]
    assert [problem["line"] for problem in rows[1]["problems"]] == [2, 2]
    assert done.stderr.strip().split("\n")[2:] == ["2 problems. Exit code 2."]


def test_files_are_confined_to_the_suites_folder(folder: Path, suite: Suite) -> None:
    write(
        folder,
        {
            "elsewhere/c.yaml": "- {id: a, input: hi, criteria: c}\n",
            "own/s.yaml": "tests: ../elsewhere/c.yaml\n",
        },
    )
    refused = suite("show", "own/s.yaml", "--json")
    assert (refused.returncode, "lies outside" in refused.stderr) == (2, True)
    assert suite("show", "own/s.yaml", "--json", "--allow-path", "elsewhere").returncode == 0


def test_comparing_two_runs(folder: Path, suite: Suite) -> None:
    for name in ("good", "bad"):
        suite("run", "s.eval.yaml", "--responses", f"{name}.json", "--output", f"{name}.jsonl")
    done = suite("compare", "good.jsonl", "bad.jsonl")
    assert (done.returncode, "-0.500 on average over 2 tests (95 %: " in done.stderr) == (1, True)
    for rule, code in (("interval", 0), ("none", 0), ("x", 2)):
        assert suite("compare", "good.jsonl", "bad.jsonl", "--fail-on", rule).returncode == code
    assert suite("compare", "bad.jsonl", "good.jsonl", "--json").returncode == 0
    # A test that is gone may have failed.
    lines = (folder / "good.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "fewer.jsonl").write_text(lines[0], encoding="utf-8")
    assert suite("compare", "good.jsonl", "fewer.jsonl").returncode == 3
    assert suite("compare", "fewer.jsonl", "good.jsonl").returncode == 0


def test_neither_the_commands_nor_a_deterministic_run_load_what_is_heavy_or_need_utf_8(folder: Path) -> None:
    write(folder, {"answers.json": json.dumps({"a": "ok 🖨", "b": "é"})})
    run = ["p", "suite", "run", "s.eval.yaml", "--responses", "answers.json", "--output", "rows.jsonl"]
    code = (
        "import sys, persona_pipeline.cli.app\n"
        "heavy = {'pydantic_settings', 'regex', 're2', 'persona_pipeline.judging', 'persona_pipeline.world.world'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        f"sys.argv = {run}\n"
        "try: persona_pipeline.cli.main()\n"
        "except SystemExit as ended: print(ended.code)\n"
        "heavy = {'dagster', 'pandas', 'anthropic', 'sqlalchemy', 'numpy', 'sklearn', 'jinja2', 'fastapi'}\n"
        "heavy |= {'persona_pipeline.guard.report', 'persona_pipeline.world.world'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    environment = {**os.environ, **ASCII}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=PATIENCE)
    lines = done.stdout.splitlines()
    assert (lines[0], lines[-2:], "Traceback" in done.stderr) == ("[]", ["1", "[]"], False), done.stdout + done.stderr


def test_a_judge_replays_its_recordings(
    folder: Path, suite: Suite, sample_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, {"j.yaml": "tests:\n  - {id: a, input: hi, assert: [{type: llm_judge}], criteria: c}\n"})
    monkeypatch.setenv("PERSONA_ROOT", str(sample_root))
    done = suite("run", "j.yaml", "--responses", "good.json", "--json")
    row: Any = json.loads(done.stdout)["tests"][0]
    assert (done.returncode, row["verdict"], row["error"]["reason"]) == (3, "error", "unrecorded")
    assert "--record" in row["error"]["message"]


OTHER = """
tests:
  - {id: a, input: hi, assert: [{type: contains, value: never}]}
  - {id: c, input: hi, assert: [{type: contains, value: ok}]}
"""
TARGETS = "targets:\n  - {name: default, provider: mock, response: ok}\n"


class TestSeveralSuites:
    """Files, folders and globs in one run: one summary, one exit code."""

    @pytest.fixture
    def several(self, folder: Path) -> Path:
        write(folder, {"more/other.eval.yaml": OTHER, "more/notes.yaml": "no: suite", "targets.yaml": TARGETS})
        (folder / ".git").mkdir()
        return folder

    @pytest.mark.parametrize(
        "places", [["."], ["s.eval.yaml", "more"], ["s.eval.yaml", "more/*.eval.yaml", "./s.eval.yaml"]]
    )
    def test_are_found_once_each_and_summed_up(self, several: Path, suite: Suite, places: list[str]) -> None:
        done = suite("run", *places)
        assert done.returncode == 1
        assert "fail       0.000  other/a" in done.stdout and "pass       1.000  desk/a" in done.stdout
        assert done.stdout.splitlines()[-1].startswith("2 suites: 3 of 4 passed, 1 failed")

    def test_write_one_file_of_each_kind(self, several: Path, suite: Suite) -> None:
        outputs = [word for name in ("r.jsonl", "r.json", "sub/r.xml", "r.html") for word in ("--output", name)]
        assert suite("run", ".", *outputs).returncode == 1
        rows = [json.loads(line)["id"] for line in (several / "r.jsonl").read_text(encoding="utf-8").splitlines()]
        assert sorted(rows) == ["desk/a", "desk/b", "other/a", "other/c"]
        whole = json.loads((several / "r.json").read_text(encoding="utf-8"))
        assert (whole["summary"]["failed"], [item["suite"] for item in whole["suites"]]) == (1, ["other", "desk"])
        junit = (several / "sub" / "r.xml").read_text(encoding="utf-8")
        assert (junit.count("<testsuite "), junit.count("<failure ")) == (2, 1)
        assert "other/a" in (several / "r.html").read_text(encoding="utf-8")
        assert suite("compare", "r.jsonl", "r.json").returncode == 0

    def test_go_on_where_they_stopped(self, several: Path, suite: Suite) -> None:
        suite("run", ".", "--output", "r.jsonl")
        lines = (several / "r.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        (several / "r.jsonl").write_text("".join(lines[:2]) + lines[2][:20], encoding="utf-8")
        done = suite("run", ".", "--output", "r.jsonl", "--resume")
        assert done.stdout.splitlines()[-1].startswith("2 suites: 3 of 4 passed, 1 failed")
        again = (several / "r.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        assert again[:2] == lines[:2] and sorted(json.loads(line)["id"] for line in again) == [
            *("desk/a", "desk/b", "other/a", "other/c")
        ]

    def test_of_which_a_filter_leaves_none_are_left_out(self, several: Path, suite: Suite) -> None:
        assert suite("run", ".", "--test-id", "c").stdout.splitlines()[-1].startswith("other: 1 of 1 passed")
        done = suite("run", ".", "--test-id", "x")
        assert done.returncode == 3
        assert "no test of desk matches" in done.stdout and "no test of other matches" in done.stdout

    def test_with_one_name_are_told_apart_by_their_path(self, several: Path, suite: Suite) -> None:
        write(several, {"third/other.eval.yaml": OTHER})
        done = suite("run", "more", "third", "--json")
        ids = [test["id"] for test in json.loads(done.stdout)["tests"]]
        assert ids == [f"{several}/{name}/other.eval.yaml/{test}" for name in ("more", "third") for test in "ac"]

    def test_one_without_a_test_cannot_be_told(self, several: Path, suite: Suite) -> None:
        write(several, {"empty.eval.yaml": "tests: []\n"})
        done = suite("run", "s.eval.yaml", "empty.eval.yaml", "--json")
        summary = json.loads(done.stdout)["summary"]
        assert (done.returncode, summary["result"], summary["reason"]) == (3, "cannot_tell", "empty has no tests")
        # A suite of which a shard leaves none has its tests in another shard.
        write(several, {"one.eval.yaml": "tests: [{id: z, input: hi, assert: [{type: contains, value: ok}]}]\n"})
        assert suite("run", "s.eval.yaml", "one.eval.yaml", "--shard", "2/2").returncode == 0

    def test_a_place_without_a_suite_is_an_error(self, several: Path, suite: Suite) -> None:
        write(several, {"none/a.txt": ""})
        done = suite("run", ".", "none", "x/*.eval.yaml")
        assert done.returncode == 2
        assert "none: holds no suite" in done.stderr and "x/*.eval.yaml: holds no suite" in done.stderr

    def test_that_nobody_answers_stop_the_run_before_it_begins(self, several: Path, suite: Suite) -> None:
        write(several, {"more/un.eval.yaml": OTHER + "execution: {target: nobody}\n"})
        done = suite("run", "s.eval.yaml", "more")
        assert (done.returncode, done.stdout) == (2, "")

    def test_that_are_not_valid_stop_the_run_before_it_begins(self, several: Path, suite: Suite) -> None:
        write(several, {"more/bad.eval.yaml": "tests: 5\n"})
        done = suite("run", ".", "--output", "r.jsonl")
        assert done.returncode == 2 and not (several / "r.jsonl").exists()


def test_a_shard_is_a_part_of_the_tests(suite: Suite) -> None:
    run = ("run", "s.eval.yaml", "--responses", "good.json", "--json")
    for shard, ids in {"1/2": ["a"], "2/2": ["b"], "3/3": [], "1/1": ["a", "b"]}.items():
        done = suite(*run, "--shard", shard)
        assert done.returncode == (0 if ids else 3)
        assert [test["id"] for test in json.loads(done.stdout)["tests"]] == ids
    for shard in ("0/2", "3/2", "1", "a/b", "-1/2", "1/0"):
        done = suite(*run, f"--shard={shard}")
        assert (done.returncode, "is no part such as 2/4" in done.stderr) == (2, True), shard


MISSING = """
tests:
  - id: a
    input: hi
    assert:
      - {type: code_judge, script: [python3, ./judges/none.py]}
      - {type: code_judge, script: ./judges/gone.sh --fast}
      - {type: code_judge, script: [python3, here.py]}
      - {type: llm_judge, prompt: {script: [node, none.mjs]}}
      - {type: composite, assert: [{type: is_json}], aggregator: {type: code_judge, path: [./none]}}
"""


def test_validation_sees_scripts_that_are_missing(folder: Path, suite: Suite) -> None:
    write(folder, {"m.eval.yaml": MISSING, "here.py": ""})
    done = suite("validate", "m.eval.yaml")
    assert done.returncode == 2
    for place, name in (("6:", "./judges/none.py"), ("7:", "./judges/gone.sh"), ("9:", "none.mjs"), ("10:", "./none")):
        assert any(
            f"m.eval.yaml:{place}" in line and f"{name!r} does not exist" in line for line in done.stderr.splitlines()
        )
    assert "here.py" not in done.stderr
    # A run says so and goes on: what it comes to is an error of that test.
    done = suite("run", "m.eval.yaml", "--responses", "good.json", "--allow-code")
    assert (done.returncode, "warning: " in done.stderr) == (3, True)


def test_folders_that_the_settings_allow(
    folder: Path, suite: Suite, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write(elsewhere, {"cases.yaml": "- {id: z, input: hi, criteria: c}\n"})
    write(folder, {"o.eval.yaml": f"tests: {elsewhere}/cases.yaml\n"})
    assert suite("validate", "o.eval.yaml").returncode == 2
    monkeypatch.setenv("PERSONA_SUITE_ALLOW_PATH", f"/nowhere, {elsewhere}")
    get_settings.cache_clear()
    assert suite("validate", "o.eval.yaml").returncode == 0


CHANGING = """
tests:
  - {id: a, input: hi, assert: [{type: contains, value: ok}]}
  - {id: b, input: ho, assert: [{type: contains, value: ok}]}
  - file://more.jsonl
"""


# A file, what is replaced in it, by what, and which tests differ then; an edit stays for those after it.
EDITS = [
    ("other.txt", "", "x", []),
    # No test names it.
    ("suites/judge.md", "Judge", "Grade", []),
    ("suites/x.eval.yaml", "input: ho", "input: hey", ["b"]),
    ("suites/more.jsonl", '"id": "d", "input": "hi"', '"id": "d", "input": "hey"', ["d"]),
    ("suites/x.eval.yaml", "tests:", "assert: [{type: contains, value: k}]\ntests:", ["a", "b", "c", "d"]),
    ("suites/x.eval.yaml", "tests:", "execution: {targets: [x]}\ntests:", ["a", "b", "c", "d"]),
    (
        "suites/x.eval.yaml",
        "  - file:",
        "  - {id: e, input: hi, criteria: c, assert: [{type: is_json}]}\n  - file:",
        ["e"],
    ),
]


def test_only_tests_that_differ_from_a_commit_are_run_and_a_doubt_is_a_difference(folder: Path, suite: Suite) -> None:
    row = {"input": "hi", "criteria": "c", "assert": [{"type": "is_json"}]}
    more = "".join(json.dumps({"id": name, **row}) + "\n" for name in "cd")
    suites = {"suites/x.eval.yaml": CHANGING, "suites/more.jsonl": more, "suites/judge.md": "Judge {{ answer }}"}
    write(folder, {**suites, "other.txt": "", "answers.json": json.dumps(dict.fromkeys("abcdef", "ok"))})
    git(folder, "init", "-q")

    def commit() -> None:
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "a change")

    def ran(commit: str = "HEAD") -> list[str]:
        done = suite("run", "suites", "--responses", "answers.json", "--changed", commit, "--json")
        assert done.returncode in (0, 1), done.stderr
        return [test["id"] for test in json.loads(done.stdout)["tests"]]

    commit()
    assert ran() == []
    for file, old, new, ids in EDITS:
        text = (folder / file).read_text(encoding="utf-8")
        (folder / file).write_text(text.replace(old, new, 1) if old else new, encoding="utf-8")
        assert ran() == ids, new
        commit()
        assert (ran(), ran("HEAD^")) == ([], ids), new
    # A suite that the commit does not have is new.
    (folder / "suites/x.eval.yaml").rename(folder / "suites/y.eval.yaml")
    assert ran() == ["a", "b", "e", "c", "d"]
    for name in ("nothing", "--output=/tmp/x"):
        done = suite("run", "suites", "--responses", "answers.json", f"--changed={name}")
        assert (done.returncode, "git cannot tell" in done.stderr) == (2, True)
