"""Strict YAML: one dialect, bounded, every error placed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.base.documents.yaml import load_document, parse_document
from persona_pipeline.base.errors import ConfigError


def test_scalars_are_yaml_1_2() -> None:
    for text, value in (
        ("no", "no"), ("yes", "yes"), ("on", "on"), ("2026-01-15", "2026-01-15"), ("1:30", "1:30"), ("1_000", "1_000"),
        ("0123", 123), ("0o17", 15), ("0x1F", 31), ("1e3", 1000.0), (".5", 0.5), ("+7", 7), ("-0", 0), ("~", None),
        ("", None), ("null", None), ("Null", None), ("nULL", "nULL"), ("true", True), ("TRUE", True), ("tRue", "tRue"),
        (".inf", math.inf), ("-.INF", -math.inf), ("0b11", "0b11"), ("'7'", "7"), ("!!str 7", "7"), ("!!int '7'", 7),
        ("!!float 7", 7.0), ("0.", 0.0), ("1.5.2", "1.5.2"), ("<<", "<<"),
    ):  # fmt: skip
        found = parse_document(f"key: {text}\n").data["key"]
        assert (text, found, type(found)) == (text, value, type(value))


def test_not_a_number_is_read_for_the_schema_to_refuse() -> None:
    assert math.isnan(parse_document("key: .NaN").data["key"])


def test_keys_are_strings_as_json_spells_them() -> None:
    assert parse_document("{1: one, true: t, null: n, 0x10: hex}").data == {
        "1": "one", "true": "t", "null": "n", "16": "hex"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("a: 1\nb: 2\na: 3", "3:1", "stands twice (first on line 1)"),
        ('a: "\\0"', "1:4", "NUL character"),
        ("a: &x [*x]", "1:8", "not defined before"),
        ("a: *missing", "1:4", "not defined before"),
        ("? [a]\n: b", "1:3", "single value"),
        ("? {a: 1}\n: b", "1:3", "single value"),
        ("a: !!python/object:os.system {}", "1:4", "not allowed"),
        ("a: !custom 1", "1:4", "not allowed"),
        ("a: !!int x", "1:4", "is no int"),
        ("<<: {a: 1}", "1:1", "merge keys"),
        ("---\na: 1\n---\nb: 2", "3:1", "more than one"),
        ("a:\n\tb: 1", "2:1", "not valid YAML"),
        ("a: [1, 2", "2:1", "not valid YAML"),
        ("a: \x00", "1:1", "not valid YAML"),
        ("9" * 500, "1:1", "digits"),
    ],
)
def test_errors_name_the_place(text: str, place: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_document(text, "f.yaml")
    message = str(error.value)
    assert message.startswith(f"f.yaml:{place}: ")
    assert says in message


def test_alias_bomb_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    with pytest.raises(ConfigError, match="100,000 values"):
        parse_document("\n".join(lines))


@pytest.mark.parametrize("text", ["[" * 65 + "]" * 65, "{a: " * 65 + "1" + "}" * 65, "[" * 100_000])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="deeper than 64"):
        parse_document(text)


def test_sixty_four_levels_are_allowed() -> None:
    parse_document("[" * 64 + "]" * 64)


def test_large_and_binary_files_are_refused(tmp_path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"a: " + b"x" * 1_000_000)
    with pytest.raises(ConfigError, match="larger than 1,000,000 bytes"):
        load_document(path)
    path.write_bytes(b"a: ok\nb: \xff\xfe")
    with pytest.raises(ConfigError, match=r"big\.yaml:2:1: is not UTF-8"):
        load_document(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_document(tmp_path / "missing.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_document(tmp_path)


def test_positions_lead_to_values_and_keys() -> None:
    document = parse_document("top:\n  - id: a\n    weight: 1\n  - &b {id: b}\nagain: [*b]\n")
    assert document.where(("top", 0, "weight")) == (3, 13)
    assert document.where(("top", 0, "weight"), key=True) == (3, 5)
    assert document.where(("top", 1, "id")) == (4, 13)
    assert document.where(("top", 0, "nothing", 5)) == (2, 5)
    assert document.data["again"] == [{"id": "b"}]


@given(
    st.text(alphabet=st.sampled_from("a:-[]{}&*!|>'\"# \n\t?,.0<%@`é\u2028\U0001f600"), max_size=60)
    | st.text(max_size=60)
)
def test_any_text_parses_or_is_a_config_error(text: str) -> None:
    try:
        document = parse_document(text)
    except ConfigError as error:
        assert error.problems[0].line is not None
    else:
        assert document.where(()) >= (1, 1)


# YAML allows no control characters, and no surrogates as escapes.
_text = st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn", "Co"]))
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4),
    max_leaves=10,
)


@given(_json)
def test_json_means_the_same_as_yaml(value: object) -> None:
    import json

    assert parse_document(json.dumps(value, ensure_ascii=False)).data == value


def test_every_key_that_stands_twice_is_named() -> None:
    with pytest.raises(ConfigError) as error:
        parse_document("a: 1\nb: {c: 1, c: [2]}\na: {d: 3}\na: 4\n", "f.yaml")
    assert str(error.value).splitlines() == [
        "f.yaml:2:11: key 'c' stands twice (first on line 2); remove one",
        "f.yaml:3:1: key 'a' stands twice (first on line 1); remove one",
        "f.yaml:4:1: key 'a' stands twice (first on line 1); remove one",
    ]
