"""Proposition files (spec/1): merged by the keys that are present, every error placed."""

from pathlib import Path

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.world.propositions.loading import (
    load_proposition_file,
    load_proposition_set,
)
from persona_pipeline.world.propositions.models import (
    ACTION_LEVEL_WINDOW_DEFAULTS,
    EVALUATION_WINDOW_DEFAULTS,
    PropositionSet,
)

DEFAULT = """\
dimension: adherence
hard: true
first_n: 3
target_type: environment
propositions:
  - id: d1
    claim: "{{agent_name}} is kind"
"""


def write(root: Path, name: str, text: str, dimension: str = "adherence") -> Path:
    path = root / dimension / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("own", "changed"),
    [
        ("", {}),
        ("hard: false\n", {"hard": False}),
        ("first_n: 0\nlast_n: 0\n", {"first_n": 0, "last_n": 0}),
        ("include_personas: false\n", {"include_personas": False}),
        ("target_type: agent\nlevel: action\n", {"target_type": "agent", "level": "action"}),
    ],
)
def test_only_present_keys_override(tmp_path: Path, own: str, changed: dict[str, object]) -> None:
    write(tmp_path, "_default.yaml", DEFAULT)
    write(tmp_path, "ann.yaml", f"dimension: adherence\n{own}propositions: [{{id: a1, claim: dry}}]\n")
    merged = load_proposition_set(tmp_path, "adherence", "ann")
    expected = {"include_personas": True, "hard": True, "first_n": 3, "last_n": None, "target_type": "environment"}
    for name, value in {**expected, "level": "evaluation", **changed}.items():
        assert getattr(merged, name) == value, name
    assert [item.id for item in merged.propositions] == ["d1", "a1"]
    assert merged.agent_id == "ann"
    assert merged.propositions[0].claim == "{{agent_name}} is kind", "claims are filled in later"


def test_either_file_may_be_missing_but_not_both(tmp_path: Path) -> None:
    write(tmp_path, "ann.yml", "dimension: adherence\npropositions: [{id: a1, claim: dry}]\n")
    assert [item.id for item in load_proposition_set(tmp_path, "adherence", "ann").propositions] == ["a1"]
    with pytest.raises(ConfigError, match=r"write .*adherence/_default\.yaml or bob\.yaml"):
        load_proposition_set(tmp_path, "adherence", "bob")


def test_a_duplicate_id_names_both_places(tmp_path: Path) -> None:
    first = write(tmp_path, "_default.yaml", DEFAULT)
    second = write(tmp_path, "ann.yaml", "dimension: adherence\npropositions:\n  - claim: dry\n    id: d1\n")
    with pytest.raises(ConfigError) as error:
        load_proposition_set(tmp_path, "adherence", "ann")
    assert str(error.value) == f"{second}:4:9: proposition id 'd1' is taken by {first}:6; rename one"


CLAIM = "propositions: [{id: a, claim: c}]\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (CLAIM, ":1:1: dimension is required"),
        (f"dimension: adherance\n{CLAIM}", ":1:12: dimension:"),
        (f"dimension: fluency\n{CLAIM}", ":1:12: dimension 'fluency' is unlike its folder 'adherence'"),
        (f"dimension: adherence\nagent_id: bob\n{CLAIM}", ":2:11: agent_id 'bob' is unlike the file's name"),
        (f"dimension: adherence\nhrad: true\n{CLAIM}", ":2:1: unknown key 'hrad'; did you mean 'hard'?"),
        (f"dimension: adherence\nhard: yes\n{CLAIM}", ":2:7: hard: must be true or false"),
        (f"dimension: adherence\nhard: 1\n{CLAIM}", ":2:7: hard: must be true or false"),
        (f"dimension: adherence\nhard: null\n{CLAIM}", ":2:7: hard: must be true or false"),
        (f"dimension: adherence\nfirst_n: -1\n{CLAIM}", ":2:10: first_n:"),
        (f"dimension: adherence\nfirst_n: 2.0\n{CLAIM}", ":2:10: first_n: must be a whole number"),
        (f"dimension: adherence\nfirst_n: '2'\n{CLAIM}", ":2:10: first_n: must be a whole number"),
        (f"dimension: adherence\nlast_n: true\n{CLAIM}", ":2:9: last_n: must be a whole number"),
        (f"dimension: adherence\ntarget_type: channel\n{CLAIM}", ":2:14: target_type:"),
        (f"dimension: adherence\ncatchphrases: [{{phrase: x}}]\n{CLAIM}", "catchphrases are for fluency"),
        ("dimension: adherence\npropositions: [{id: '', claim: c}]", ":2:21: propositions.0.id:"),
        ("dimension: adherence\npropositions: [{id: ' ', claim: c}]", "must not be empty"),
        ("dimension: adherence\npropositions: [{id: _x, claim: c}]", "must not start with '_'"),
        ("dimension: adherence\npropositions: [{id: a, claim: ''}]", ":2:31: propositions.0.claim: must not be empty"),
        ("dimension: adherence\npropositions: [{id: a}]", ":2:16: propositions.0.claim is required"),
        ("dimension: adherence\npropositions: [{id: 7, claim: c}]", "propositions.0.id: must be a string"),
        ("dimension: adherence\npropositions: [{id: a, claim: c, weight: -1}]", "propositions.0.weight:"),
        ("dimension: adherence\npropositions: [{id: a, claim: c, weight: .nan}]", "finite"),
        ("dimension: adherence\npropositions: [{id: a, claim: c, weight: .inf}]", "finite"),
        ("dimension: adherence\npropositions: [{id: a, claim: c, weight: true}]", "must be a number"),
        ("dimension: adherence\npropositions: [{id: a, claim: c, weight: '1'}]", "must be a number"),
        ("dimension: adherence\npropositions: [{id: a, claim: c, wieght: 1}]", "did you mean 'weight'?"),
        ("dimension: adherence\npropositions: [{id: a, claim: c, weight: 0}]", "all weights are 0"),
        ("dimension: adherence\npropositions: {id: a}", "propositions: must be a list"),
        ("dimension: adherence\ndimension: adherence\n", ":2:1: key 'dimension' stands twice"),
        ("", ":1:1: the file: must be a mapping"),
    ],
)
def test_a_broken_file_is_placed(tmp_path: Path, text: str, says: str) -> None:
    path = write(tmp_path, "ann.yaml", text)
    with pytest.raises(ConfigError) as error:
        load_proposition_set(tmp_path, "adherence", "ann")
    assert says in str(error.value)
    assert str(error.value).startswith(str(path))


def test_all_problems_of_both_files_come_at_once(tmp_path: Path) -> None:
    write(tmp_path, "_default.yaml", "dimension: adherence\nhrad: 1\nfirst_n: x\npropositions: [{id: a}]")
    write(tmp_path, "ann.yaml", "dimension: fluency\nlast_n: []\n")
    with pytest.raises(ConfigError) as error:
        load_proposition_set(tmp_path, "adherence", "ann")
    assert len(str(error.value).splitlines()) == 5


@pytest.mark.parametrize(
    ("default", "own", "says"),
    [
        pytest.param(
            "dimension: fluency\nhrad: 1\nagent_id: bob\npropositions: [{id: a, claim: c}, {id: a, claim: d}]",
            "dimension: adherence",
            ["_default.yaml:1:12: dimension 'fluency'", "_default.yaml:2:1: unknown key 'hrad'",
             "_default.yaml:3:11: agent_id 'bob'", "_default.yaml:4:40: proposition id 'a' is taken by"],
            id="a wrong place and a double id beside an unknown key",
        ),
        pytest.param(
            "dimension: adherence\nfirst_n: x\npropositions: [{id: a, claim: c}]",
            "dimension: adherence\npropositions: [{id: a, claim: c}, {id: 7}]",
            ["_default.yaml:2:10: first_n", "ann.yaml:2:21: proposition id 'a' is taken by", "ann.yaml:2:35: propositions.1.claim",
             "ann.yaml:2:40: propositions.1.id"],
            id="an id taken across files that have other mistakes",
        ),
    ],
)  # fmt: skip
def test_one_mistake_hides_no_other(tmp_path: Path, default: str, own: str, says: list[str]) -> None:
    write(tmp_path, "_default.yaml", default)
    write(tmp_path, "ann.yaml", own)
    with pytest.raises(ConfigError) as error:
        load_proposition_set(tmp_path, "adherence", "ann")
    lines = str(error.value).splitlines()
    assert [text for text in says if not any(text in line for line in lines)] == []
    assert len(lines) == len(says)


def test_a_file_knows_its_folder_from_within_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write(tmp_path, "_default.yaml", DEFAULT).parent)
    assert load_proposition_file(Path("_default.yaml")).content.dimension == "adherence"


@pytest.mark.parametrize("dimension", ["adherance", "../adherence", "", "Adherence"])
def test_an_unknown_dimension_is_refused(tmp_path: Path, dimension: str) -> None:
    with pytest.raises(ConfigError, match="unknown dimension"):
        load_proposition_set(tmp_path, dimension)


def test_windows_default_by_context() -> None:
    empty = PropositionSet("adherence", ())
    assert empty.window(EVALUATION_WINDOW_DEFAULTS) == (10, 100)
    assert empty.window(ACTION_LEVEL_WINDOW_DEFAULTS) == (5, 10)
    assert PropositionSet("adherence", (), first_n=0, last_n=2).window() == (0, 2)
