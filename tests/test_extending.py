"""What a newcomer forgets who adds one more of something: docs/extending.md lists the steps, and these tests name a missing one."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.guard.baselines.regression import Rule
from persona_pipeline.importing.run import IMPORTERS
from persona_pipeline.judging.providers.base import PROVIDERS
from persona_pipeline.world.propositions.models import BUILT_IN
from persona_pipeline.world.settings import AllowedDrops
from tests.importing.samples import SAMPLES

PROJECT = Path(__file__).parents[1]
# Their columns are the user's own, so they have no sample that is the same conversation: tests/importing/test_tables.py.
WITHOUT_SAMPLE = {"table"}


def page(name: str) -> str:
    return (PROJECT / "docs" / name).read_text(encoding="utf-8")


def rows_of(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


def row_of(text: str, name: str) -> list[str]:
    """The first row of a table that names something in its first cell, or an empty one."""
    return next((row for row in rows_of(text) if re.search(rf"`{name}`", row[0])), [])


@pytest.mark.parametrize("name", PROVIDERS.built_in)
def test_a_provider_has_a_row_with_address_key_and_price(name: str) -> None:
    row = row_of(page("reference/providers.md"), name)
    assert len(row) == 5 and all(row[2:]), f"add {name} to the first table of docs/reference/providers.md"


@pytest.mark.parametrize("name", IMPORTERS.built_in)
def test_a_format_has_a_row_and_a_sample(name: str) -> None:
    assert row_of(page("reference/formats.md"), name), f"add {name} to docs/reference/formats.md"
    assert name in {*SAMPLES, *WITHOUT_SAMPLE}, f"add {name} to tests/importing/samples.py"


@pytest.mark.parametrize("item", BUILT_IN, ids=lambda item: item.name)
def test_a_dimension_has_claims_and_rows(item: object) -> None:
    name = getattr(item, "name", "")
    assert (PROJECT / f"persona_pipeline/world/template/propositions/{name}/_default.yaml").is_file()
    assert any(f"`{name}`" in cell for row in rows_of(page("reference/terms.md")) for cell in row)
    assert any(row[0] == name for row in rows_of(page("reference/propositions.md")))


@pytest.mark.parametrize("name", [item.name for item in fields(Rule)])
def test_a_rule_is_an_option_and_may_be_set_for_a_dimension(name: str) -> None:
    assert name in EvaluationRequest.model_fields, "add it to persona_pipeline/base/options.py"
    assert name in AllowedDrops.model_fields, "add it to AllowedDrops in persona_pipeline/world/settings.py"
    assert f"`{name}`" in page("reference/persona-yaml.md")
