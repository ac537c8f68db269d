"""Every option of an evaluation on every surface: it is there, it has its bounds, and its value arrives. What is not, is listed."""

import functools
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from pydantic import ValidationError

import persona_pipeline as pp
from docs.site.generated import cli_commands, written_places
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import INTERNAL, Asking, EvaluationRequest, bounds_of, given, kind_of
from persona_pipeline.defs.cohort import RegressionConfig
from persona_pipeline.defs.component import PersonaWorld, WorldSettings
from persona_pipeline.defs.platform.resources import EvaluationSettings
from persona_pipeline.pytest_plugin.marks import Evaluations
from persona_pipeline.testing.worlds import write_small_world
from tests.support.command_line import in_process
from tests.support.github import Runner
from tests.support.pull_requests import git

PROJECT = Path(__file__).parents[1]

# For each option a value that is not its default, as Python and run config have it, and as a text.
VALUES: dict[str, tuple[Any, str]] = {
    "agents": (["ann"], "ann"),
    "dimensions": (["fluency", "adherence"], "fluency,adherence"),
    "window": ("3d", "3d"),
    "as_of": ("2026-06-14T23:59:59Z", "2026-06-14T23:59:59Z"),
    "since": ("2026-06-10T23:59:59+02:00", "2026-06-10T23:59:59+02:00"),
    "judge": ("anthropic", "anthropic"),
    "samples": (3, "3"),
    "grouping": (4, "4"),
    "record": (True, "true"),
    "fresh": (True, "true"),
    "max_usd": (0.5, "0.5"),
    "confirm": (False, "false"),
    "synthetic": (True, "true"),
    "facts": (True, "true"),
    "regression_delta": (1.5, "1.5"),
    "proposition_delta": (2.5, "2.5"),
    "undecided_delta": (4.0, "4"),
    "threshold": (7.0, "7"),
    "min_coverage": (0.5, "0.5"),
    "fail_on": (["injection", "trend"], "injection, trend"),
    "only_fail_on": (["regression", "trend"], "regression, trend"),
    "require_calibration": (True, "true"),
    "against": ("HEAD^1", "HEAD^1"),
    "accept_baseline": (True, "true"),
    "update_baseline": (True, "true"),
    "baseline_windows": (4, "4"),
    "accept": ("the new manner", "the new manner"),
    "history": (2, "2"),
    "touched": (True, "true"),
    "newest_window": (True, "true"),
    "accepted_drops": ((), ""),
    "by_dimension": ({}, ""),
    "usual": ({}, ""),
}

STEPS = "Dagster's own: how its steps cut a run into windows that are fixed already"
PARTITIONS = "an asset is about its partitions, and a dimension is an asset"
NO_LINEAGE = "generated conversations are no message files, which assets come from; the job of CI has it"
STORED = "assets say what is stored; a commit decides in the job of CI, in a store of its own"
TAKING = "taking baselines is a command, a call and a job of its own"
MOMENT = "a project says what holds for every run; which moment a run is about, it says itself"
VERDICT = "a baseline is what was measured, and rests on no verdict"

EXCEPTIONS: dict[tuple[str, str], str] = {
    **{("python", name): TAKING for name in ("update_baseline", "baseline_windows", "accept")},
    ("evaluate", "baseline_windows"): TAKING,
    **{
        ("baseline", name): VERDICT
        for name in (
            *("since", "confirm", "synthetic", "regression_delta", "proposition_delta", "undecided_delta", "threshold"),
            *("min_coverage", "fail_on", "only_fail_on", "require_calibration", "against", "accept_baseline", "update_baseline"),
            *("history", "touched", "facts"),
        )
    },
    **{
        (surface, name): reason
        for surface in ("assets", "component")
        for name, reason in {
            "agents": PARTITIONS,
            "dimensions": PARTITIONS,
            "synthetic": NO_LINEAGE,
            "against": STORED,
            "accept_baseline": STORED,
            "update_baseline": TAKING,
            "baseline_windows": TAKING,
            "accept": TAKING,
        }.items()
    },
    **{("component", name): MOMENT for name in ("as_of", "since", "record", "fresh")},
    **{("pytest", name): TAKING for name in ("update_baseline", "baseline_windows", "accept")},
    **{
        ("action", name): "a job leaves nothing in the repository"
        for name in ("record", "update_baseline", "baseline_windows", "accept")
    },
    ("action", "against"): "its input base and the event say which commit decides",
    ("action", "accept_baseline"): "counts beside against, which a pull request sets: tests/test_pull_requests.py",
}  # fmt: skip

Surface = Callable[[str, Any, str], EvaluationRequest]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small world in a repository of two commits; nothing is written there."""
    root = write_small_world(tmp_path_factory.mktemp("repository") / "world")
    git(root, "init", "--quiet", "--template=")
    for message in ("before", "now"):
        git(root, "add", ".")
        git(root, "commit", "--quiet", "--allow-empty", "--message", message)
    return root


def _beside(name: str) -> dict[str, Any]:
    """What an option is nothing without."""
    return {"against": "HEAD^1"} if name == "accept_baseline" else {}


@pytest.fixture
def surfaces(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, Surface]:
    """What makes a request of an option's value, by surface."""
    caught: list[EvaluationRequest] = []

    def catch(request: EvaluationRequest) -> None:
        caught.append(request)
        raise ConfigError("reached")

    def of_command(command: str) -> Surface:
        def asked(name: str, value: Any, text: str) -> EvaluationRequest:
            monkeypatch.setattr("persona_pipeline.cli.evaluate.run_and_print", lambda *args, **_: catch(args[2]))
            run = in_process(root, monkeypatch, capsys)
            option = (
                "--windows" if (command, name) == ("baseline", "baseline_windows") else f"--{name.replace('_', '-')}"
            )
            spelled = [option if value else f"--no-{option[2:]}"] if kind_of(name) is bool else [option, text]
            others = [word for key, other in _beside(name).items() for word in (f"--{key}", other)]
            done = run(command, *spelled, *others)
            assert done.stderr.endswith("reached\n"), done.stderr
            return caught.pop()

        return asked

    def python(name: str, value: Any, text: str) -> EvaluationRequest:
        monkeypatch.setattr(
            "persona_pipeline.api.evaluating.run_evaluation", lambda world, judge, request: catch(request)
        )
        monkeypatch.setattr("persona_pipeline.api.evaluating._open_judge", lambda *_: None)
        world = pp.load_world(root)
        for spelled in [value, text] if kind_of(name) is list or name in ("as_of", "since") else [value]:
            judged: dict[str, Any] = {"judge": spelled} if name == "judge" else {name: spelled, **_beside(name)}
            with pytest.raises(ConfigError, match="reached"):
                pp.evaluate(world, **judged)
        return caught.pop() if name != "judge" else EvaluationRequest(judge=value)

    def component(name: str, value: Any, text: str) -> EvaluationRequest:
        made = PersonaWorld.model_validate({"world": str(root), "prefix": "office", "settings": {name: value}})
        place = made.place(tmp_path)
        if name in ("require_calibration", "undecided_delta"):
            assert getattr(place.settings, name) == value
            return EvaluationRequest(**{name: value})
        return EvaluationSettings(**place.asked).request(pp.load_world(root))

    def of_pytest(name: str, value: Any, text: str) -> EvaluationRequest:
        lines = [f"{key} = {said}" for key, said in {name: text, **_beside(name)}.items()]
        config: Any = _Ini({"persona_options": lines, "persona_window": "", "persona_as_of": "", "persona_samples": ""})
        return EvaluationRequest(**Evaluations(config)._options)

    @functools.cache
    def run_of_action() -> dict[str, Any]:
        """Give the action all its inputs in one run, and return the config of the job that it starts."""
        runner = Runner(tmp_path / "runner", root, event="push")
        programs = runner.temp / "persona-pipeline" / "bin"
        programs.mkdir(parents=True)
        (programs / "python").write_text('#!/bin/sh\nexec python3 "$@"\n', encoding="utf-8")
        (programs / "dagster").write_text("#!/bin/sh\n", encoding="utf-8")
        for program in programs.iterdir():
            program.chmod(0o755)
        inputs = {name: text for name, (_, text) in VALUES.items() if name not in INTERNAL}
        asked = {name: text for name, text in inputs.items() if ("action", name) not in EXCEPTIONS}
        done = runner.run(PROJECT / "action.yml", "Evaluate", root=".", **asked)
        assert done.returncode == 0, done.stderr
        config = json.loads((runner.temp / "persona-evaluation.json").read_text(encoding="utf-8"))
        return RegressionConfig(**config["ops"]["regression_report"]["config"]).given

    def action(name: str, value: Any, text: str) -> EvaluationRequest:
        return EvaluationRequest(**{name: run_of_action()[name]})

    return {
        "evaluate": of_command("evaluate"),
        "baseline": of_command("baseline"),
        "python": python,
        "assets": lambda name, value, text: EvaluationSettings(**{name: value}).request(pp.load_world(root)),
        "ci_job": lambda name, value, text: EvaluationRequest(**RegressionConfig(**{name: value, **_beside(name)}).given),
        "component": component,
        "pytest": of_pytest,
        "action": action,
    }  # fmt: skip


class _Ini:
    """An ini file of pytest without options on the command line."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.getini = values.__getitem__


SURFACES = ("evaluate", "baseline", "python", "assets", "ci_job", "component", "pytest", "action")


def test_every_option_has_a_value_here_and_every_exception_a_reason() -> None:
    assert [*VALUES] == [*EvaluationRequest.model_fields]
    assert {surface for surface, _ in EXCEPTIONS} <= {*SURFACES} and {name for _, name in EXCEPTIONS} <= {*VALUES}
    assert all(EXCEPTIONS.values())


@pytest.mark.parametrize("surface", SURFACES)
def test_every_value_arrives(surfaces: dict[str, Surface], surface: str) -> None:
    for name, (value, text) in VALUES.items():
        if name in INTERNAL or (surface, name) in EXCEPTIONS:
            continue
        expected = getattr(EvaluationRequest(**{name: value, **_beside(name)}), name)
        found = getattr(surfaces[surface](name, value, text), name)
        assert (name, found, type(found)) == (name, expected, type(expected))


def test_what_is_no_option_of_a_surface_is_refused_there() -> None:
    has: dict[str, Any] = {
        "python": Asking.__annotations__,
        "assets": EvaluationSettings.model_fields,
        "component": WorldSettings.model_fields,
        **{key: {item.name for item in command.params} for key, command in cli_commands() if key in ("evaluate", "baseline")},
    }  # fmt: skip
    for surface, name in EXCEPTIONS:
        assert name not in has.get(surface, ()), f"{name} is an option of {surface}: take it out of the exceptions"
        if surface == "python":
            with pytest.raises(TypeError, match="unexpected keyword"):
                pp.evaluate(None, **{name: VALUES[name][0]})  # pyright: ignore
        if surface == "assets":
            with pytest.raises(ValidationError, match="there is no"):
                EvaluationSettings(**{name: VALUES[name][0]})


def test_bounds_hold_everywhere(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = in_process(root, monkeypatch, capsys)
    bounded = {name: bounds_of(name) for name in VALUES if bounds_of(name) != (None, None)}
    assert bounded
    for name, (least, most) in bounded.items():
        number = int if kind_of(name) is int else float
        for value in [number(bound + step) for bound, step in ((least, -1), (most, 1)) if bound is not None]:
            with pytest.raises(ConfigError, match=f"{name} must be "):
                EvaluationRequest(**{name: value})
            # A negative share and a limit of none were how run config said None.
            for kind in (EvaluationSettings, RegressionConfig) if given({name: value}) else ():
                if name in kind.model_fields:
                    with pytest.raises(ValidationError, match=name):
                        kind(**{name: value})
            done = run("evaluate", f"--{name.replace('_', '-')}", str(value))
            assert done.returncode == 2 or ("evaluate", name) in EXCEPTIONS, name


def test_the_keywords_of_python_are_the_options_with_their_types() -> None:
    typed, told = get_type_hints(Asking), get_type_hints(EvaluationRequest)
    for name in typed:
        own, there = {*(get_args(typed[name]) or [typed[name]])}, {*(get_args(told[name]) or [told[name]])}
        # A name or a time may be a text, too.
        assert own - {str} == there - {str} and (own == there or get_origin(told[name]) is not None), name
    assert {*typed} | {"judge"} == {
        name for name in VALUES if name not in INTERNAL and ("python", name) not in EXCEPTIONS
    }


@pytest.mark.parametrize("path", written_places(), ids=lambda path: path.name)
def test_what_is_written_from_the_options_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == written_places()[path], "run make docs"


def test_the_reference_has_a_row_an_option() -> None:
    rows = re.findall(
        r"^\| `--([\w-]+)`",
        (PROJECT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert {name.replace("_", "-") for name in VALUES if name not in (*INTERNAL, "baseline_windows")} <= {*rows}


@pytest.mark.parametrize(
    "once",
    [{"as_of": "", "since": ""}, {"max_usd": 0.0}, {"grouping": 0}, {"min_coverage": -1.0}],
    ids=lambda once: "_".join(once),
)
def test_what_run_config_once_wrote_for_none_still_is_none(once: dict[str, Any]) -> None:
    assert (
        EvaluationSettings(**once).given == {} == RegressionConfig(**once, agents=[], dimensions=[], against="").given
    )


def test_no_finding_to_fail_on_is_not_the_usual_ones() -> None:
    assert EvaluationRequest(fail_on="none").fail_on == []  # pyright: ignore[reportArgumentType]
    assert RegressionConfig(fail_on=[]).given == {"fail_on": []}  # pyright: ignore[reportCallIssue]
    assert EvaluationRequest(as_of="2026-06-14T23:59:59Z").as_of == datetime(2026, 6, 14, 23, 59, 59, tzinfo=UTC)  # pyright: ignore[reportArgumentType]
