"""Names that the judge does not see, and quotes that have them again."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.lab.versions import HiddenNames, Version, VersionAgent
from persona_pipeline.testing import WorldBuilder


def agent(
    root: Path, text: str = "Michael Scott sells paper.", name: str = "Michael Scott", **fields: list[str]
) -> VersionAgent:
    builder = WorldBuilder(root).persona("mike", text, display_name=name, **fields)
    builder.claim("adherence", "a", "Michael talks of {{agent_name}} and of help")
    return Version("", builder.root).agent("mike", ["adherence"])


def test_every_word_of_a_name_is_hidden_wherever_it_stands(tmp_path: Path) -> None:
    own = agent(tmp_path, aliases=["Prison Mike"])
    hidden = HiddenNames.of(own).hidden(own)
    claims = hidden.sets["adherence"].propositions
    assert claims is not None
    texts = [hidden.persona.display_name, hidden.persona.persona, hidden.names["mike"], claims.propositions[0].claim]
    assert not [text for text in texts for name in ("michael", "scott", "mike") if name in text.lower()]
    assert hidden.persona.agent_id == "mike" and "{{agent_name}}" in texts[-1]


@pytest.mark.parametrize(
    "text",
    [
        "I am Michael. MICHAEL!",
        "michael scott's paper",
        "Scott, Michael; (Michael)",
        "No name",
        "Michaela is somebody else",
    ],
)
def test_quotes_have_the_names_again(tmp_path: Path, text: str) -> None:
    names = HiddenNames.of(agent(tmp_path))
    hidden = names.hide(text)
    assert names.show(hidden) == text
    assert ("Michaela" in text) == ("Michaela" in hidden)
    assert "michael " not in hidden.lower()


@pytest.mark.parametrize(
    ("name", "text", "hidden", "kept"),
    [
        ("Help Desk", "Anyone may ask the help desk.", ["Help Desk"], ["Help is near"]),
        ("ミラ", "ミラは庭の話をする。", ["ミラさん", "私はミラ"], []),
        ("Will", "She will help.", ["Will"], ["will"]),
        ("Mira", "Mira spricht kurz.", ["Miraさん"], []),
    ],
)
def test_a_common_word_is_no_name_by_itself(
    tmp_path: Path, name: str, text: str, hidden: list[str], kept: list[str]
) -> None:
    names = HiddenNames.of(agent(tmp_path, text, name))
    assert all(name not in names.hide(item) for item in hidden)
    assert all(names.hide(item) == item for item in kept)
    assert all(names.show(names.hide(item)) == item for item in [*hidden, *kept])


@given(st.lists(st.sampled_from(["Michael", "michael", "SCOTT", "Mike", "and", "Velm", "x"]), max_size=12))
def test_hiding_is_one_to_one(words: list[str]) -> None:
    names = HiddenNames({"Michael": "Velmar", "Scott": "Quorin", "Mike": "Tasbek"})
    text = " ".join(words)
    assert names.show(names.hide(text)) == HiddenNames({}).show(HiddenNames({}).hide(text)) == text
