"""The GitHub workflows: what they may do, that linters pass them, and that the comment script does what it says."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import settings
from typer.testing import CliRunner

from persona_pipeline.cli.app import app
from persona_pipeline.reporting.markdown import MARKER
from persona_pipeline.world.changes import FOLDERS
from tests.support import github
from tests.support.waiting import PATIENCE

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PROJECT = Path(__file__).parents[1]
FOLDER = PROJECT / ".github" / "workflows"
WORKFLOWS = sorted(FOLDER.glob("*.yml"))
ACTIONS = [PROJECT / "action.yml", PROJECT / ".github" / "actions" / "comment" / "action.yml"]
BIN = Path(sys.executable).parent
WORLD_FOLDERS = [name for name in FOLDERS if "." not in name]


def load(name: str) -> dict[str, Any]:
    return github.load(FOLDER / name)


def steps(name: str) -> list[dict[str, Any]]:
    return github.steps(FOLDER / name)


def test_there_are_six() -> None:
    names = [
        "budgets.yml",
        "ci.yml",
        "persona-comment.yml",
        "persona-evaluation.yml",
        "persona-rejudge.yml",
        "release.yml",
    ]
    assert [path.name for path in WORKFLOWS] == names


def test_the_nightly_job_alone_has_a_key_and_no_pull_request_starts_it() -> None:
    workflow = load("persona-rejudge.yml")
    assert set(workflow["on"]) == {"schedule", "workflow_dispatch"}
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert job["environment"] == "judge"
    for path in WORKFLOWS:
        assert ("secrets." in path.read_text(encoding="utf-8")) is (path.name == "persona-rejudge.yml")


def test_budgets_are_checked_every_night_on_both_databases() -> None:
    workflow = load("budgets.yml")
    assert set(workflow["on"]) == {"schedule", "workflow_dispatch"} and workflow["permissions"] == {"contents": "read"}
    assert workflow["jobs"]["budgets"]["strategy"]["matrix"]["database"] == ["sqlite", "postgres"]
    assert "benchmarks/budgets.py" in github.step(FOLDER / "budgets.yml", "Measure")["run"]


def test_properties_are_tried_with_more_examples_every_night_than_at_a_push() -> None:
    run = github.step(FOLDER / "budgets.yml", "Try")["run"]
    assert run.endswith("-m hypothesis --hypothesis-profile=thorough")
    assert settings.get_profile("thorough").max_examples > 20 * settings.get_profile("default").max_examples


def test_a_release_is_started_by_a_person_and_published_without_a_token() -> None:
    workflow = load("release.yml")
    assert set(workflow["on"]) == {"workflow_dispatch"} and workflow["permissions"] == {}
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert build["permissions"] == {"contents": "read"}
    # What runs the project's code may not publish, and what may publish runs none of it.
    assert (publish["needs"], publish["environment"]) == ("build", "pypi")
    assert publish["permissions"] == {"id-token": "write", "attestations": "write"}
    assert not any("run" in step for step in publish["steps"])
    uses = [step["uses"].partition("@")[0] for step in publish["steps"]]
    assert uses == ["actions/download-artifact", "actions/attest-build-provenance", "pypa/gh-action-pypi-publish"]


@pytest.mark.parametrize(
    ("ref", "version", "package", "changelog", "said"),
    [
        ("refs/tags/v0.2.0", "0.2.0", "0.2.0", "0.2.0", ""),
        ("refs/heads/main", "0.2.0", "0.2.0", "0.2.0", "run this on the tag v0.2.0, not on refs/heads/main"),
        ("refs/tags/v0.3.0", "0.3.0", "0.2.0", "0.3.0", "version.py has another version"),
        ("refs/tags/v0.2.0", "0.2.0", "0.2.0", "Unreleased", "CHANGELOG.md does not begin with 0.2.0"),
    ],
)
def test_a_release_has_one_version(
    ref: str, version: str, package: str, changelog: str, said: str, tmp_path: Path
) -> None:
    check = github.step(FOLDER / "release.yml", "The tag, the package and the changelog say the same version")
    (tmp_path / "persona_pipeline").mkdir()
    (tmp_path / "persona_pipeline" / "version.py").write_text(f'"""Which."""\n\n__version__ = "{package}"\n', "utf-8")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {changelog}\n\n## 0.1.0\n", "utf-8")
    environment = {"PATH": os.environ["PATH"], "GITHUB_REF": ref, "VERSION": version}
    command = ["bash", "-e", "-c", check["run"]]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stdout) == (1 if said else 0, True)


def test_the_comment_says_how_the_workflow_ended_and_what_git_says_has_changed() -> None:
    render = next(step for step in steps("persona-comment.yml") if step.get("name") == "Render the comment")
    assert {"CONCLUSION", "HEAD_SHA"} <= set(render["env"]) and "if" not in render
    assert '--conclusion "$CONCLUSION"' in render["run"] and '--head "$HEAD_SHA"' in render["run"]


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_actions_are_pinned_by_full_commit_with_their_version(path: Path) -> None:
    uses = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    assert uses
    for use in uses:
        assert re.fullmatch(r"(actions/[\w-]+|pypa/gh-action-pypi-publish)@[0-9a-f]{40} # v\d+\.\d+\.\d+", use), use


def test_one_version_of_each_action() -> None:
    pins = {
        use for path in (*WORKFLOWS, *ACTIONS) for use in re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
    }
    assert len({pin.split("@")[0] for pin in pins}) == len(pins)


@pytest.mark.parametrize("name", ["ci.yml", "persona-evaluation.yml"])
def test_code_of_a_pull_request_runs_with_read_rights_only(name: str) -> None:
    workflow = load(name)
    assert workflow["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for job in workflow["jobs"].values())
    assert "pull_request_target" not in workflow["on"] and "secrets" not in json.dumps(workflow)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_checkout_leaves_its_token_behind(path: Path) -> None:
    checkouts = [step for step in steps(path.name) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts and all(step["with"]["persist-credentials"] == "false" for step in checkouts)


def test_the_evaluation_runs_on_every_folder_of_a_world() -> None:
    triggers = load("persona-evaluation.yml")["on"]
    assert triggers["pull_request"]["paths"] == triggers["push"]["paths"]
    assert {f"{folder}/**" for folder in WORLD_FOLDERS} <= set(triggers["push"]["paths"])
    assert {"persona.yaml", ".persona/**", ".github/**", "**/.gitattributes"} <= set(triggers["push"]["paths"])


def test_the_evaluation_runs_the_dagster_job_and_keeps_its_report_whatever_comes_out() -> None:
    config = ".github/persona-evaluation.yaml"
    evaluate = github.step(FOLDER / "persona-evaluation.yml", "Evaluate")
    assert "dagster job execute -m persona_pipeline.definitions -j persona_regression" in evaluate["run"]
    # A pull request is judged by the base's run config, against its base, in a store of its own.
    assert f'git show "${{AGAINST:-HEAD}}:{config}"' in evaluate["run"] and "HEAD^1" in evaluate["env"]["AGAINST"]
    assert evaluate["env"]["PERSONA_DATABASE_URL"].startswith("sqlite:///${{ runner.temp }}/")
    upload = next(step for step in steps("persona-evaluation.yml") if "upload-artifact" in step.get("uses", ""))
    options = yaml.safe_load((PROJECT / config).read_text(encoding="utf-8"))["ops"]["regression_report"]["config"]
    assert upload["if"] == "always()" and upload["with"]["path"] == options["reports"] + "/"


def test_the_comment_workflow_runs_the_default_branch_and_reads_the_artefact_of_the_other_run() -> None:
    workflow = load("persona-comment.yml")
    assert workflow["on"]["workflow_run"]["workflows"] == [load("persona-evaluation.yml")["name"]]
    assert workflow["permissions"] == {}
    (job,) = workflow["jobs"].values()
    assert job["permissions"] == {"actions": "read", "contents": "read", "pull-requests": "write"}
    assert job["steps"][0]["with"]["ref"] == "${{ github.event.repository.default_branch }}"
    # Nothing a pull request can name is put into a shell or script as text.
    for step in job["steps"]:
        assert "${{" not in step.get("run", "") and "${{" not in step.get("with", {}).get("script", "")


def test_zizmor_finds_nothing() -> None:
    command = [BIN / "zizmor", "--offline", "--no-progress", "--persona=pedantic", FOLDER, *ACTIONS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_actionlint_finds_nothing() -> None:
    actionlint = shutil.which("actionlint", path=str(BIN)) or shutil.which("actionlint")
    if actionlint is None:
        pytest.skip("no actionlint on this machine")
    command = [actionlint, "-shellcheck=", "-pyflakes=", *WORKFLOWS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_the_documentation_shows_is_clean_and_pinned_too(tmp_path: Path) -> None:
    """The pages cannot name a commit of this repository: one stands for it."""
    shown = [
        block.replace("@COMMIT", "@" + "0" * 40)
        for page in ("tutorial/getting-started.md", "reference/reports.md")
        for block in re.findall(
            r"```yaml\n(# \.github/workflows/.*?)```", (PROJECT / "docs" / page).read_text("utf-8"), re.S
        )
    ]
    assert len(shown) >= 3
    paths = []
    for number, block in enumerate(shown):
        path = tmp_path / ".github" / "workflows" / f"w{number}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block, "utf-8")
        paths.append(path)
        for use in re.findall(r"uses: (\S+)", block):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", use), use
    command = [BIN / "zizmor", "--offline", "--no-progress", *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    if actionlint := shutil.which("actionlint", path=str(BIN)):
        done = subprocess.run(
            [actionlint, "-shellcheck=", "-pyflakes=", *paths], capture_output=True, text=True, check=False
        )
        said = [line for line in done.stdout.splitlines() if re.match(r".*:\d+:\d+:", line)]
        assert said == []


def test_the_pre_commit_hook_calls_a_command_that_exists() -> None:
    (hook,) = yaml.safe_load((PROJECT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    program, *arguments = hook["entry"].split()
    assert program == "persona-pipeline" and hook["language"] == "python" and hook["pass_filenames"] is False
    assert CliRunner().invoke(app, [*arguments, "--help"]).exit_code == 0
    for folder in WORLD_FOLDERS:
        assert re.search(hook["files"], f"{folder}/michael.yaml") and re.search(
            hook["files"], f"world/{folder}/a/b.yml"
        )
    assert not re.search(hook["files"], "src/mypersonas.py")


RUN_SCRIPT = """async ([script, world]) => {
  const calls = [];
  const record = (name) => async (options) => { calls.push([name, options]); };
  const rest = {
    pulls: { list: 'pulls' },
    issues: { listComments: 'comments', updateComment: record('update'), createComment: record('create') },
  };
  const github = { rest, paginate: async (what, options) => { calls.push([what, options]); return world[what]; } };
  const context = { repo: { owner: 'o', repo: 'r' }, payload: { workflow_run: world.run } };
  const core = { notice: (text) => calls.push(['notice', text]) };
  const require = () => ({ readFileSync: () => world.body });
  const process = { env: { RUNNER_TEMP: '/t' } };
  const AsyncFunction = (async () => {}).constructor;
  await new AsyncFunction('github', 'context', 'core', 'require', 'process', script)(
    github, context, core, require, process);
  return calls;
}"""
BODY = f"{MARKER}\n## Persona evaluation"
OURS = {"id": 7, "user": {"login": "github-actions[bot]"}, "body": f"{MARKER}\nold"}
HEAD = {"number": 5, "head": {"sha": "abc"}}


@pytest.mark.browser
@pytest.mark.enable_socket
@pytest.mark.parametrize(
    ("pulls", "comments", "expected"),
    [
        pytest.param([HEAD], [], ["create", {"issue_number": 5, "body": BODY}], id="the first report is a new comment"),
        pytest.param([HEAD], [OURS], ["update", {"comment_id": 7, "body": BODY}], id="the next one replaces it"),
        pytest.param(
            [HEAD],
            [{**OURS, "user": {"login": "mallory"}}, {**OURS, "user": None}],
            ["create", {"issue_number": 5, "body": BODY}],
            id="a comment with our marker by somebody else is left alone",
        ),
        pytest.param(
            [{"number": 5, "head": {"sha": "newer"}}],
            [],
            ["notice", None],
            id="a branch that moved on gets no old report",
        ),
        pytest.param([], [], ["notice", None], id="a pull request that was closed gets none"),
    ],
)
def test_there_is_one_comment(browser: "Browser", pulls: list[dict], comments: list[dict], expected: list[Any]) -> None:
    script = next(step["with"]["script"] for step in steps("persona-comment.yml") if "script" in step.get("with", {}))
    run = {"head_sha": "abc", "head_branch": "fix", "head_repository": {"owner": {"login": "fork"}}}
    world = {"pulls": pulls, "comments": comments, "run": run, "body": BODY}
    page = browser.new_page()
    calls = page.evaluate(RUN_SCRIPT, [script, world])
    page.close()
    assert calls[0] == ["pulls", {"owner": "o", "repo": "r", "state": "open", "head": "fork:fix"}]
    name, options = calls[-1]
    assert name == expected[0]
    if expected[1]:
        assert options == {"owner": "o", "repo": "r", **expected[1]}


def _run_ci_job(root: Path) -> subprocess.CompletedProcess[str]:
    """Run the evaluation as CI does, in a world of its own and with no environment."""
    config = PROJECT / ".github" / "persona-evaluation.yaml"
    command = [str(BIN / "dagster"), "job", "execute", "-m", "persona_pipeline.definitions", "-j", "persona_regression"]
    command += ["-c", str(config)]
    home = root.parent / "dagster-home"
    home.mkdir()
    shutil.copy(PROJECT / "dagster.yaml", home)
    environment = {"PATH": str(BIN), "PERSONA_ROOT": str(root), "HOME": str(root), "TMPDIR": str(root.parent)}
    environment["DAGSTER_HOME"] = str(home)
    return subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@pytest.mark.slow
def test_the_job_is_green_on_the_sample_world(sample_root: Path) -> None:
    done = _run_ci_job(sample_root)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    files = {path.name for path in (sample_root / "persona-report").iterdir()}
    assert files == {"comment.md", "junit.xml", "report.html", "report.json"}
    assert "All 4 agents are in character" in (sample_root / "persona-report" / "comment.md").read_text(
        encoding="utf-8"
    )
