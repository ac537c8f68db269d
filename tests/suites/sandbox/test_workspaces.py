"""Workspaces: made, prepared, compared, cleaned up."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.settings import Settings
from persona_pipeline.suites import RunOptions, Suite, SuiteResult, run_suite
from persona_pipeline.suites.running.opening import load_targets
from persona_pipeline.suites.sandbox.workspaces import snapshot, unified_diff
from tests.suites.support import load, run, write

EDITS = "import sys; open('new.txt','w').write('made\\n'); open('old.txt','a').write('more\\n'); print('ok')"


def suite(folder: Path, workspace: str, *, asserts: str = "[{type: contains, value: ok}]", tests: str = "") -> Suite:
    write(
        folder,
        {
            "template/old.txt": "one\n",
            "template/deep/keep.txt": "same\n",
            "template/.git/config": "[core]\n",
            "targets.yaml": json.dumps(
                {"targets": [{"name": "default", "provider": "cli", "command": [sys.executable, "-c", EDITS]}]}
            ),
        },
    )
    return load(folder, f"workspace: {workspace}\ntests:\n  - {{id: t, input: hi, assert: {asserts}{tests}}}\n")


def go(folder: Path, loaded: Suite, **options: Any) -> SuiteResult:
    given = {"allow_code": True, "settings": Settings(state=folder), **options}
    return run_suite(loaded, targets=load_targets(folder / "targets.yaml"), options=RunOptions(**given))


def hook(code: str) -> str:
    return json.dumps({"script": [sys.executable, "-c", code]})


def test_a_copy_of_the_template_is_worked_in_and_its_changes_are_kept(tmp_path: Path) -> None:
    (test,) = go(tmp_path, suite(tmp_path, "{template: ./template}")).tests
    assert test.best.output is not None
    assert test.best.output.file_changes == (
        "diff --git a/new.txt b/new.txt\n--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+made\n"
        "diff --git a/old.txt b/old.txt\n--- a/old.txt\n+++ b/old.txt\n@@ -1 +1,2 @@\n one\n+more\n"
    )
    assert (tmp_path / "template/old.txt").read_text(encoding="utf-8") == "one\n"
    assert not (tmp_path / "template/new.txt").exists()


@pytest.mark.parametrize(
    ("asserts", "options", "kept"),
    [
        ("[{type: contains, value: ok}]", {}, False),
        ("[{type: contains, value: NO}]", {}, True),
        ("[{type: contains, value: ok}]", {"keep_workspaces": True}, True),
    ],
    ids=["removed when the test passes", "kept when it fails", "kept on demand"],
)
def test_cleaning_up(tmp_path: Path, asserts: str, options: Any, kept: bool) -> None:
    (test,) = go(tmp_path, suite(tmp_path, "{template: ./template}", asserts=asserts), **options).tests
    left = list((tmp_path / "workspaces").rglob("new.txt"))
    assert bool(left) is kept
    assert (test.to_dict().get("workspace_path") is not None) is kept
    assert not list((tmp_path / "workspaces").rglob(".git"))


def test_setup_and_teardown_see_the_test(tmp_path: Path) -> None:
    code = (
        "import json, os, sys; d = json.load(sys.stdin); "
        "open(os.path.join(d['workspace_path'], 'setup.txt'), 'w').write(d['test_id'] + d['case_input']); "
        "open('hooks.log', 'a').write(os.environ['AGENTV_WORKSPACE_PATH'] + d['case_metadata']['k'])"
    )
    loaded = suite(tmp_path, f"{{setup: {hook(code)}, teardown: {hook(code)}}}", tests=", metadata: {k: v}")
    (test,) = go(tmp_path, loaded, keep_workspaces=True).tests
    assert test.verdict == "pass"
    workspace = Path(str(test.best.workspace_kept))
    assert (workspace / "setup.txt").read_text(encoding="utf-8") == "thi"
    assert (tmp_path / "hooks.log").read_text(encoding="utf-8") == f"{workspace}v" * 2
    assert test.best.output is not None
    # What setup made is where the target started from, so it is no change.
    assert "setup.txt" not in str(test.best.output.file_changes)


def test_a_failed_setup_is_the_tests_error_and_the_target_is_not_asked(tmp_path: Path) -> None:
    loaded = suite(
        tmp_path, f"{{template: ./template, setup: {hook('import sys; sys.stderr.write(chr(98)); sys.exit(4)')}}}"
    )
    (test,) = go(tmp_path, loaded).tests
    assert test.error is not None
    assert (test.error.reason, test.best.output) == ("workspace_failed", None)
    assert "exited with code 4: b" in test.error.message


def test_a_failed_teardown_is_a_note(tmp_path: Path) -> None:
    loaded = suite(tmp_path, f"{{template: ./template, teardown: {hook('raise SystemExit(4)')}}}")
    (test,) = go(tmp_path, loaded).tests
    assert test.verdict == "pass"
    assert "exited with code 4" in test.notes[0]


def test_hooks_need_leave_and_a_template_does_not(tmp_path: Path) -> None:
    loaded = suite(tmp_path, f"{{template: ./template, setup: {hook('pass')}}}")
    (test,) = go(tmp_path, loaded, allow_code=False).tests
    assert test.error is not None
    assert test.error.reason == "code_not_allowed"


def test_suite_hooks_run_once_around_everything(tmp_path: Path) -> None:
    code = "import json, sys; open('all.log', 'a').write(json.load(sys.stdin)['test_id'])"
    loaded = suite(tmp_path, f"{{before_all: {hook(code)}, after_all: {hook(code)}}}")
    assert go(tmp_path, loaded).exit_code == 0
    assert (tmp_path / "all.log").read_text(encoding="utf-8") == "__before_all____after_all__"


def test_recorded_answers_need_no_hooks_and_no_leave(tmp_path: Path) -> None:
    loaded = suite(tmp_path, f"{{before_all: {hook('1/0')}, setup: {hook('1/0')}}}")
    assert run(loaded, {"t": "ok"}).exit_code == 0


def test_a_failed_start_is_every_tests_error(tmp_path: Path) -> None:
    named = ", conversation_id: c, metadata: {team: a}"
    result = go(tmp_path, suite(tmp_path, f"{{before_all: {hook('raise SystemExit(1)')}}}", tests=named))
    (test,) = result.tests
    assert (result.exit_code, test.error and test.error.reason) == (3, "workspace_failed")
    assert (test.id, test.test_id, test.conversation_id, test.metadata) == ("t", "t", "c", {"team": "a"})


def test_links_that_leave_the_template_are_not_copied(tmp_path: Path) -> None:
    loaded = suite(tmp_path, "{template: ./template}")
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    (tmp_path / "template/out").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "template/in").symlink_to("old.txt")
    (test,) = go(tmp_path, loaded, keep_workspaces=True).tests
    workspace = Path(str(test.best.workspace_kept))
    assert not (workspace / "out").exists()
    assert (workspace / "in").is_symlink()


def test_hostile_ids_name_no_folder_elsewhere(tmp_path: Path) -> None:
    write(tmp_path, {"template/old.txt": "x\n"})
    suite(tmp_path, "{template: ./template}")
    loaded = load(
        tmp_path,
        "workspace: {template: ./template}\ntests:\n  - {id: '../../../x/..', input: hi, assert: [{type: contains, value: ok}]}\n",
    )
    (test,) = go(tmp_path, loaded, keep_workspaces=True).tests
    assert Path(str(test.best.workspace_kept)).resolve().is_relative_to(tmp_path / "workspaces")


def test_differences_of_files_that_are_no_text_are_named(tmp_path: Path) -> None:
    write(tmp_path, {"a": "x\n", "b": "no end"})
    before = snapshot(tmp_path)
    (tmp_path / "a").write_bytes(b"\xff\x00")
    (tmp_path / "b").unlink()
    assert unified_diff(before, snapshot(tmp_path)) == (
        "diff --git a/a b/a\nBinary files a/a and b/a differ\n"
        "diff --git a/b b/b\n--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-no end\n\\ No newline at end of file\n"
    )


def test_the_judge_sees_what_changed(tmp_path: Path) -> None:
    code = (
        "import json, sys; d = json.load(sys.stdin); print(json.dumps({'score': float('+made' in d['file_changes'])}))"
    )
    asserts = json.dumps([{"type": "code_judge", "script": [sys.executable, "-c", code]}])
    assert go(tmp_path, suite(tmp_path, "{template: ./template}", asserts=asserts)).exit_code == 0
