"""Templates: one pass, allow-listed names, nothing else is expanded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.propositions import fill_template, template_variables


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{{agent_name}} and {{agent_name}}", "Ann and Ann"),
        (
            "{{env.HOME}} {{7*7}} {% for x in y %} {{ agent_name }}",
            "{{env.HOME}} {{7*7}} {% for x in y %} {{ agent_name }}",
        ),
        ("{{unknown}}", "{{unknown}}"),
        ("{{{agent_name}}}", "{Ann}"),
        ("{{agent_name", "{{agent_name"),
        ("{{AGENT_NAME}}", "{{AGENT_NAME}}"),
        ('<{{agent_name}}> & "{{agent_name}}"', '<Ann> & "Ann"'),
    ],
)
def test_only_known_variables_are_filled(text: str, filled: str) -> None:
    assert fill_template(text, {"agent_name": "Ann"}) == filled


@given(st.text(), st.text())
def test_values_are_never_expanded_again(name: str, action: str) -> None:
    wild = name + "{{action}}"
    assert fill_template("{{agent_name}}", {"agent_name": wild, "action": action}) == wild


@given(st.text(alphabet="{}ab_", max_size=30))
def test_text_without_known_variables_is_untouched(text: str) -> None:
    assert fill_template(text, {}) == text


def test_used_variables_are_listed_once() -> None:
    assert template_variables("{{a}} {{b}} {{a}} {{ c }}") == ["a", "b"]
