"""What a newcomer forgets who adds one more of something: docs/extending.md lists the steps, and these tests name a missing one."""

import re
import uuid
from dataclasses import fields
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.database import tables
from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.options import RULES, Registry
from persona_pipeline.evaluation.history import rows_of
from persona_pipeline.guard.baselines.models import BaselineComparison
from persona_pipeline.guard.baselines.regression import Rule
from persona_pipeline.guard.report import AgentEvaluation, AgentReport
from persona_pipeline.importing.base import Importer
from persona_pipeline.importing.run import IMPORTERS
from persona_pipeline.judging.providers.base import PROVIDERS, Provider
from persona_pipeline.suites.format.registry import BUILT_IN as BUILT_IN_ASSERTS
from persona_pipeline.world.propositions.models import BUILT_IN
from tests.importing.samples import SAMPLES

PROJECT = Path(__file__).parents[1]
# Their columns are the user's own, so they have no sample that is the same conversation: tests/importing/test_tables.py.
WITHOUT_SAMPLE = {"table"}
# The revision of the tables, and what it stands for.
REVISION = ("0017", "ba1cde8786fbb09012aa3d2f1428938b201eb81a33f3bfa7fd4cb5b9239ac755")


def page(name: str) -> str:
    return (PROJECT / "docs" / name).read_text(encoding="utf-8")


def table_rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


def row_of(text: str, name: str) -> list[str]:
    """The first row of a table that names something in its first cell, or an empty one."""
    return next((row for row in table_rows(text) if re.search(rf"`{name}`", row[0])), [])


def test_a_provider_has_a_row_with_address_key_and_price() -> None:
    for name in PROVIDERS.built_in:
        row = row_of(page("reference/providers.md"), name)
        assert len(row) == 5 and all(row[2:]), f"add {name} to the first table of docs/reference/providers.md"


def test_a_format_has_a_row_and_a_sample() -> None:
    for name in IMPORTERS.built_in:
        assert row_of(page("reference/formats.md"), name), f"add {name} to docs/reference/formats.md"
        assert name in {*SAMPLES, *WITHOUT_SAMPLE}, f"add {name} to tests/importing/samples.py"


def test_a_provider_is_asked_over_its_protocol() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (PROJECT / "tests" / "judging").glob("test_*.py")]
    texts.append((PROJECT / "tests" / "support" / "providers.py").read_text(encoding="utf-8"))
    missing = [name for name in PROVIDERS.built_in if not any(f'"{name}"' in text for text in texts)]
    assert missing == [], "add a case of each to tests/judging/test_providers.py"


@pytest.mark.parametrize(
    ("folder", "kind", "registry"),
    [("judging/providers", Provider, PROVIDERS), ("importing", Importer, IMPORTERS)],
    ids=["providers", "formats"],
)
def test_a_class_with_a_name_is_in_its_table_under_that_name(folder: str, kind: type, registry: Registry[Any]) -> None:
    files = sorted((PROJECT / "persona_pipeline" / folder).rglob("*.py"))
    names = [".".join(path.relative_to(PROJECT).with_suffix("").parts) for path in files]
    classes = [item for name in names for item in vars(import_module(name)).values() if isinstance(item, type)]
    named = {item for item in classes if issubclass(item, kind) and isinstance(vars(item).get("name"), str)}
    table = {f"{item.__module__}:{item.__name__}": vars(item)["name"] for item in named}
    assert table == {place: name for name, place in registry.built_in.items()}, "add it to the table, under its name"


def test_an_assert_type_is_tested() -> None:
    folder = PROJECT / "tests"
    texts = [path.read_text(encoding="utf-8") for path in (folder / "suites").rglob("*.py")]
    texts.append((folder / "conformance" / "eval-suites.json").read_text(encoding="utf-8"))
    whole = "\n".join(texts)
    missing = [name for name in BUILT_IN_ASSERTS if not re.search(rf"\b{name.replace('_', '[-_]')}\b", whole)]
    assert missing == [], "add a test of each to tests/suites/asserts"


def test_a_scorer_belongs_to_a_dimension() -> None:
    files = sorted((PROJECT / "persona_pipeline" / "scoring").glob("*.py"))
    plans = {
        f"persona_pipeline.scoring.{path.stem}:{name}"
        for path in files
        for name in re.findall(r"^def (plan_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert plans == {item.scorer for item in BUILT_IN}, "add the dimension to BUILT_IN in world/propositions/models.py"


@pytest.mark.parametrize("item", BUILT_IN, ids=lambda item: item.name)
def test_a_dimension_has_claims_and_rows(item: object) -> None:
    name, world = getattr(item, "name", ""), PROJECT / "persona_pipeline/world"
    for folder in (world / "template", *(world / "languages").iterdir()):
        assert (folder / "propositions" / name / "_default.yaml").is_file(), f"write claims of {name} in {folder}"
    assert any(f"`{name}`" in cell for row in table_rows(page("reference/terms.md")) for cell in row)
    assert any(row[0] == name for row in table_rows(page("reference/propositions.md")))


def test_the_rules_of_a_dimension_are_those_that_options_name() -> None:
    names = [item.name for item in fields(Rule)]
    assert names == [*RULES], (
        "write it into RULES in persona_pipeline/base/options.py and Rule in guard/baselines/regression.py"
    )


def test_a_rule_is_described() -> None:
    for name in RULES:
        assert f"`{name}`" in page("reference/persona-yaml.md"), "describe it in docs/reference/persona-yaml.md"


def test_a_column_of_a_run_is_filled() -> None:
    end = datetime(2026, 6, 1, tzinfo=UTC)
    evaluation = AgentEvaluation(run_id=str(uuid.UUID(int=1)), agent_id="ann", display_name="Ann", window_end=end)
    row = rows_of(AgentReport(evaluation=evaluation, comparison=BaselineComparison(agent_id="ann"))).run
    columns = {*tables.evaluation_runs.c.keys()}
    # The database sets the first; the second is set once a baseline is taken.
    assert columns - row.keys() == {"created_at", "is_baseline"}, "fill it in _run_row of evaluation/history.py"
    assert row.keys() <= columns, "add it to evaluation_runs in base/database/tables.py"


def test_a_column_of_a_run_can_be_added_to_stores_that_exist() -> None:
    required = {column.name for column in tables.evaluation_runs.c if not column.nullable and not column.server_default}
    assert required == {"agent_id", "dimensions", "sample_size"}, "it needs to be nullable or have a server default"


def test_a_change_of_the_tables_has_a_revision() -> None:
    made = [
        (table.name, [(column.name, str(column.type), column.nullable) for column in table.c], [*table.indexes])
        for table in tables.metadata.sorted_tables
    ]
    described = [(name, columns, sorted(str(index.name) for index in indexes)) for name, columns, indexes in made]
    assert (tables.HEAD, content_hash(described)) == REVISION, (
        "raise HEAD in base/database/tables.py, so that existing stores get the change, and then write both here"
    )
