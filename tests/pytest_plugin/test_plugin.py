"""The pytest plugin in small worlds: what is collected, what is asked of whom, and what a mark means."""

import json
from pathlib import Path

import anthropic  # noqa: F401
import pytest

import persona_pipeline as pp
import persona_pipeline.pytest_plugin.marks
from persona_pipeline.base.settings import get_settings
from persona_pipeline.testing import ScriptedJudge, WorldBuilder
from tests.support.judging import recorded_by
from tests.support.messages_server import MessagesServer, message

pytest_plugins = ["pytester"]

DRY = "{{agent_name}} is dry"
SUITE = """
tests:
- {id: tea, input: '?', metadata: {tags: [hot]}, assert: [{type: contains, value: tea}]}
- {id: 'cup[1]', input: '?', assert: [{type: contains, value: cup}]}
"""
TARGETS = "targets: [{name: default, provider: replay, path: answers.jsonl}]"
ANSWERS = '{"id": "tea", "output": "tea"}\n{"id": "cup[1]", "output": "no"}\n'


@pytest.fixture(scope="module", autouse=True)
def _everything_imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A run inside a test forgets what it imports, and compiled modules cannot be imported twice."""
    root = tmp_path_factory.mktemp("imported")
    world = WorldBuilder(root).persona("ann", "Ann.").claim("adherence", "dry", DRY).say("ann", "Hm.").open()
    pp.evaluate(world, judge=ScriptedJudge(lambda request: 5))
    (root / "a.eval.yaml").write_text(SUITE, encoding="utf-8")
    pp.run_suite(root / "a.eval.yaml", responses=pp.read_responses({"tea": "tea", "cup[1]": "cup"}), world=world)
    world.store.close()


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with a world in which Ann says something; nothing is recorded."""
    builder = WorldBuilder(pytester.path / "world").persona("ann", "Ann is dry.").claim("adherence", "dry", DRY)
    for number in range(12):
        builder.say("ann", f"Hm, {number}.")
    pytester.makeini("[pytest]\npersona_root = world\n")
    for name, text in (("a.eval.yaml", SUITE), ("targets.yaml", TARGETS), ("answers.jsonl", ANSWERS)):
        (pytester.path / "suites").mkdir(exist_ok=True)
        (pytester.path / "suites" / name).write_text(text, encoding="utf-8")
    get_settings.cache_clear()
    return pytester


def run(project: pytest.Pytester, *arguments: str | Path) -> pytest.RunResult:
    # What this run has imported itself cannot be rewritten for the one inside it.
    quiet = ("-W", "error", "-W", "ignore:Module already imported")
    # A run that may load other plugins imports all of each, every time.
    alone = ("--disable-plugin-autoload", "-p", "persona_pipeline.pytest_plugin", "-p", "no:cacheprovider")
    return project.runpytest_inprocess(*alone, *quiet, *arguments)


def marked(project: pytest.Pytester, *marks: str) -> None:
    tests = [f"@pytest.mark.persona({mark})\ndef test_{number}(): pass\n" for number, mark in enumerate(marks)]
    project.makepyfile("import pytest\n\n" + "\n".join(tests))


def test_nobody_is_asked_unless_it_is_said_and_what_was_judged_is_recorded(
    project: pytest.Pytester, server: MessagesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A developer's own settings have no test ask a model.
    monkeypatch.setenv("PERSONA_JUDGE", "anthropic")
    marked(project, "'ann', dimension='adherence', threshold=0")
    assert run(project).parseoutcomes() == {"unscored": 1}
    assert server.requests == []
    asked = run(project, "--persona-judge", "anthropic", "--persona-record")
    assert asked.parseoutcomes() == {"passed": 1} and server.paid == 1
    asked.stdout.fnmatch_lines(["persona: judged live by anthropic"])
    assert [path.name for path in (project.path / "world" / "recordings").rglob("*.jsonl")] == ["adherence.jsonl"]
    assert run(project).parseoutcomes() == {"passed": 1} and server.paid == 1


def test_a_budget_holds_for_all_tests_together(project: pytest.Pytester, server: MessagesServer) -> None:
    marked(project, "'ann', threshold=0", "'ann', dimension='adherence', threshold=0")
    done = run(project, "--persona-judge", "anthropic", "--persona-max-usd", "0.0000001")
    assert done.parseoutcomes() == {"unscored": 2} and server.paid == 0
    done.stdout.fnmatch_lines(["*budget spent"])


def test_what_a_mark_asks(recorded: pytest.Pytester) -> None:
    asked = [
        ("'ann', dimension='adherence', threshold=8", "passed", None),
        ("'ann', dimension='adherence', threshold=8.5", "failed", "ann: adherence is 8.00, below 8.5*"),
        ("'ann', threshold=8", "passed", None),
        ("'ann', dimension='adherence', claim='dry', threshold=9", "failed", "ann: adherence dry is 8.00, below 9*"),
        ("'ann'", "unscored", "*no baseline*"),
        ("'ann', dimension='fluency', threshold=1", "failed", "*ann has no fluency propositions*"),
        ("'otto', threshold=1", "failed", "*otto*"),
        ("", "failed", "*names no agent*"),
        ("'ann', treshold=1", "failed", "*unexpected keyword argument 'treshold'*"),
        ("'ann', claim='dry', threshold=1", "failed", "*a claim needs its dimension*"),
        ("'ann', dimension='adherence', claim='wet', threshold=1", "failed", "*no claim 'wet' was evaluated*"),
        ("'ann', threshold=70", "failed", "*from 0 to 9, not 70*"),
        ("'ann', dimension='adherence', threshold=1, as_of='yesterday'", "failed", "*as_of*"),
    ]
    marked(recorded, *(mark for mark, *_ in asked))
    done = run(recorded, "-v")
    found = [line.split()[1].lower() for line in done.outlines if "::test_" in line and "%]" in line]
    assert dict(zip((mark for mark, *_ in asked), found, strict=True)) == {mark: outcome for mark, outcome, _ in asked}
    assert done.ret == 1
    for _, _, said in asked:
        done.stdout.fnmatch_lines([said] if said else [])
    done.stdout.no_fnmatch_line("*Traceback*")
    marked(recorded, *(mark for mark, outcome, _ in asked if outcome == "passed"))
    assert run(recorded).ret == 0


def test_a_persona_that_is_not_described_is_not_paid_for(project: pytest.Pytester, server: MessagesServer) -> None:
    WorldBuilder(project.path / "world").persona("ann", "Say here who Ann is, how it writes, and what it never does.")
    marked(project, "'ann', threshold=0")
    done = run(project, "--persona-judge", "anthropic")
    assert done.parseoutcomes() == {"failed": 1} and server.paid == 0
    done.stdout.fnmatch_lines(["*ann.yaml: persona is still the text of a new world*"])


@pytest.fixture
def recorded(project: pytest.Pytester) -> pytest.Pytester:
    """The project with every judgment recorded: Ann has 8."""
    world = pp.load_world(project.path / "world")
    judge = recorded_by(ScriptedJudge(lambda request: 8), world.root / "recordings")
    pp.evaluate(world, judge=judge)
    world.store.close()
    return project


def test_a_mark_of_a_class_holds_for_each_test_and_bodies_run_after_it(recorded: pytest.Pytester) -> None:
    recorded.makepyfile(
        """
        import unittest
        import pytest

        @pytest.mark.persona("ann", threshold=7)
        class TestAnn:
            def test_one(self): pass
            @pytest.mark.persona("ann", dimension="adherence", threshold=9)
            def test_two(self): raise RuntimeError("the body ran")

        @pytest.mark.persona("ann", threshold=9)
        class TestOld(unittest.TestCase):
            def test_three(self): raise RuntimeError("the body ran")

        @pytest.mark.persona("ann", threshold=1)
        def test_four(persona_eval): assert persona_eval("ann")["ann"].evaluation.overall == 7.5
        """
    )
    done = run(recorded)
    assert done.parseoutcomes() == {"passed": 1, "failed": 3}
    done.stdout.no_fnmatch_line("*the body ran*")


def test_a_score_that_is_too_low_shows_its_claims_as_the_mark_does(recorded: pytest.Pytester) -> None:
    recorded.makepyfile(
        """
        import pytest

        @pytest.fixture
        def score(persona_eval):
            found = persona_eval("ann").score("ann", "adherence")
            assert found == 8
            return found

        def test_first(score): assert score >= 9
        def test_other_side(score): assert 9 <= score
        def test_above(score): assert score > 8.5
        """
    )
    done = run(recorded)
    assert done.parseoutcomes() == {"failed": 3}
    done.stdout.fnmatch_lines(["*ann: adherence is 8.00, below *", "*Ann is dry*adherence/dry*"] * 3)


def test_what_is_unscored_is_no_expected_failure(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.xfail
        @pytest.mark.persona("ann", threshold=1)
        def test_unscored(): pass

        @pytest.mark.xfail
        def test_failing(): raise ValueError
        """
    )
    done = run(project, "--junitxml=out.xml")
    assert done.parseoutcomes() == {"unscored": 1, "xfailed": 1} and done.ret == 1
    assert 'failures="1"' in (project.path / "out.xml").read_text(encoding="utf-8")


def test_suites_are_collected_where_they_are_wanted(project: pytest.Pytester) -> None:
    for arguments, ini, items in (
        ((), "", []),
        (("suites",), "", []),
        (("suites/a.eval.yaml",), "", ["tea", "cup[1]"]),
        (("--persona-suites",), "", ["tea", "cup[1]"]),
        ((), "persona_suites = suites", ["tea", "cup[1]"]),
        ((), "persona_suites = others", []),
        (("-k", "hot"), "persona_suites = suites", ["tea"]),
        (("suites/a.eval.yaml::cup[1]",), "", ["cup[1]"]),
    ):
        project.makeini(f"[pytest]\npersona_root = world\n{ini}\n")
        done = run(project, "--collect-only", "-q", *arguments)
        assert (arguments, [line.partition("::")[2] for line in done.outlines if "::" in line]) == (arguments, items)


def test_each_test_of_a_suite_is_an_item(project: pytest.Pytester) -> None:
    done = run(project, "suites/a.eval.yaml", "-v")
    assert done.parseoutcomes() == {"passed": 1, "failed": 1}
    done.stdout.fnmatch_lines(["suites/a.eval.yaml::tea PASSED*", "suites/a.eval.yaml::cup[[]1] FAILED*"])
    done.stdout.fnmatch_lines(["cup[[]1] (default): fail, 0.00", "*line 1: assistant: no"])


@pytest.mark.parametrize(
    ("suite", "targets", "said"),
    [
        ("tests: [{id: a}]", TARGETS, "*a.eval.yaml:1:*input is required*"),
        (SUITE, "targets: [{name: other, provider: replay}]", "*targets.yaml:1:*"),
        (SUITE, None, "*there is no target*"),
    ],
)
def test_a_suite_that_is_not_valid_is_an_error_with_its_place(
    project: pytest.Pytester, suite: str, targets: str | None, said: str
) -> None:
    (project.path / "suites" / "a.eval.yaml").write_text(suite, encoding="utf-8")
    (project.path / "suites" / "targets.yaml").unlink()
    if targets:
        (project.path / "suites" / "targets.yaml").write_text(targets, encoding="utf-8")
    done = run(project, "suites/a.eval.yaml")
    assert done.ret != 0
    done.stdout.fnmatch_lines([said])
    done.stdout.no_fnmatch_line("*Traceback*")


ASKING = """
tests:
- {id: live, input: '?', execution: {targets: [live]}, assert: [{type: contains, value: tea}]}
- {id: tea, input: '?', assert: [{type: code_judge, script: [python3, -c, 'print(1)']}]}
"""
LIVE = """
targets:
- {name: default, provider: replay, path: answers.jsonl}
- {name: live, provider: anthropic, base_url: '%s', api_key: k, model: claude-haiku-5-5}
"""


def test_a_suite_reaches_no_server_and_runs_no_program_without_leave(
    project: pytest.Pytester, server: MessagesServer
) -> None:
    for name, text in (("a.eval.yaml", ASKING), ("targets.yaml", LIVE % server.url)):
        (project.path / "suites" / name).write_text(text, encoding="utf-8")
    done = run(project, "suites/a.eval.yaml")
    assert done.parseoutcomes() == {"unscored": 2}
    assert server.requests == []
    done.stdout.fnmatch_lines(["*--allow-targets*"])
    done.stdout.fnmatch_lines(["*--allow-code*"])


def test_targets_play_the_agents_of_the_world_that_is_given(
    project: pytest.Pytester, server: MessagesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[str] = []
    server.handler = lambda call: played.append(json.dumps(call.body)) or message("tea")
    WorldBuilder(project.path / "other").persona("ann", "Ann is merry.").open().store.close()
    monkeypatch.setenv("PERSONA_ROOT", str(project.path / "other"))
    (project.path / "suites" / "targets.yaml").write_text(
        "targets: [{name: default, provider: persona, agent: ann, model: claude-haiku-5-5}]", encoding="utf-8"
    )
    allowed = ("suites/a.eval.yaml", "--persona-allow-targets")
    for options, persona in (((), "Ann is dry."), (("--persona-root", "other"), "Ann is merry.")):
        get_settings.cache_clear()
        assert run(project, *allowed, *options).parseoutcomes() == {"passed": 1, "failed": 1}
        assert [persona in body for body in played] == [True, True], played
        played.clear()
        monkeypatch.setenv("PERSONA_ROOT", str(project.path / "world"))


def test_a_run_without_agents_imports_nothing_of_them(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing(request):
            own = sorted(name for name in sys.modules if name.startswith("persona_pipeline"))
            assert own == ["persona_pipeline", "persona_pipeline.pytest_plugin", "persona_pipeline.version"]
            assert not {"dagster", "pandas", "sklearn", "anthropic", "sqlalchemy", "pydantic"} & {*sys.modules}
        """
    )
    plugins = ("-p", "persona_pipeline.pytest_plugin")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        done = pytester.runpytest_subprocess(*plugins, "-p", "no:cacheprovider")
    assert done.parseoutcomes() == {"passed": 1}
    assert "persona" not in "".join(done.outlines[1:4])


def test_it_is_installed_under_its_entry_point() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["entry-points"]["pytest11"] == {"persona-pipeline": "persona_pipeline.pytest_plugin"}
