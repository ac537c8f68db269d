"""``labels`` and what ``validate`` says of label files, on a copy of the sample world."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli.app import app
from persona_pipeline.cli.world.setup import schema_texts
from persona_pipeline.guard.labels.files import LabellerKind
from persona_pipeline.world import World
from tests.support.judged import Judgment, judged_population
from tests.support.labels import label_of, write_labels
from tests.support.worlds import replace_in


@pytest.fixture
def judged(sample_world: World, monkeypatch: pytest.MonkeyPatch) -> list[Judgment]:
    """What can be labelled of pam; the sample world is that of the commands."""
    monkeypatch.setenv("PERSONA_ROOT", str(sample_world.root))
    get_settings.cache_clear()
    return judged_population(sample_world, ["pam"], ["adherence", "fluency"])


@pytest.fixture
def folder(sample_root: Path, judged: list[Judgment]) -> Path:
    """The world's labels: everything labelled by a person, and five by a model."""
    ada = [label_of(item.request, 5, labeller="ada", note="fair\nenough") for item in judged]
    gpt = [label_of(item.request, None, labeller="gpt", kind=LabellerKind.MODEL) for item in judged[:5]]
    write_labels(sample_root / "labels", [*ada, *gpt])
    return sample_root / "labels"


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_labels_are_listed(folder: Path, judged: list[Judgment]) -> None:
    done = run("labels", "list")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert len(lines) == len(judged) + 5
    assert sum("n/a gpt (model)" in line for line in lines) == 5
    assert len(run("labels", "list", "--labeller", "ada").stdout.splitlines()) == len(judged)


def test_validate_names_lines_that_are_no_labels(folder: Path) -> None:
    assert run("validate").stderr == ""
    replace_in(folder / "fluency.jsonl", '"score": 5', '"score": 6')
    assert run("validate", str(folder)).exit_code == 0, "the score is the labeller's"
    replace_in(folder / "fluency.jsonl", '"claim": "', '"claim": "Not ')
    done = run("validate", str(folder))
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception).startswith(f"{folder}/fluency.jsonl:1: its key is not that of")
    assert len(done.exception.problems) == 1


def test_what_is_written_fits_the_json_schema(folder: Path) -> None:
    # Its grammars take two seconds to load, in every worker that collects this file.
    from jsonschema import Draft202012Validator

    schema = json.loads(schema_texts()["label.json"])
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    rows = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text("utf-8").splitlines()]
    assert rows and all(validator.is_valid(row) for row in rows)
    both, neither = {"score": 5, "unscored": "not_applicable"}, {"score": None, "unscored": None}
    for change in (both, neither, {"score": 10}, {"x": 1}):
        assert not validator.is_valid({**rows[0], "unscored": None, **change}), change
