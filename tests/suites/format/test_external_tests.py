"""Tests in other files."""

from pathlib import Path

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites import Suite, load_suite
from tests.suites.support import load, write


def ids(suite: Suite) -> list[str]:
    return [test.id for test in suite.tests]


def problems(folder: Path, text: str, files: dict[str, str]) -> list[str]:
    write(folder, files)
    with pytest.raises(ConfigError) as raised:
        load(folder, text)
    return [str(problem).replace(f"{folder}/", "") for problem in raised.value.problems]


CASES = "- {id: a, input: hi, criteria: c}\n- {id: b, input: ho, criteria: c}\n"


def test_suite_asserts_reach_tests_of_other_files(tmp_path: Path) -> None:
    write(tmp_path, {"c.yaml": CASES})
    suite = load(tmp_path, "assert: [{type: is_json}]\ntests: [file://c.yaml]\n")
    assert [item.name for item in suite.tests[1].asserts] == ["is_json"]


def test_references_are_spliced_in_place_and_globs_are_sorted(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "cases/z.yaml": "- {id: z, input: hi, criteria: c}\n",
            "cases/m.jsonl": '{"id":"m","input":"hi","criteria":"c"}\n',
            "cases/deep/n.yaml": "- {id: n, input: hi, criteria: c}\n",
            "cases/readme.md": "not tests",
            "one.yaml": "- file://cases/deep/n.yaml\n",
        },
    )
    suite = load(
        tmp_path,
        "tests:\n  - {id: first, input: hi, criteria: c}\n  - file://cases/*\n  - file://one.yaml\n"
        "  - {id: last, input: hi, criteria: c}\n",
    )
    assert ids(suite) == ["first", "m", "z", "n", "last"]


@pytest.mark.parametrize("pattern", ["cases/?.yaml", "cases/{a,b}.yaml", "cases/[ab].yaml", "**/*.yaml"])
def test_every_kind_of_glob_expands(tmp_path: Path, pattern: str) -> None:
    write(tmp_path / "in", {f"cases/{n}.yaml": f"- {{id: {n}, input: hi, criteria: c}}\n" for n in ("a", "b")})
    write(tmp_path, {"s.yml": f"tests: ['file://in/{pattern}']\n"})
    assert ids(load_suite(tmp_path / "s.yml")) == ["a", "b"]


def test_tests_may_be_json(tmp_path: Path) -> None:
    write(tmp_path, {"a.json": '[\n\t{"id": "a", "input": "hi", "criteria": "c"}\n]\n'})
    assert ids(load(tmp_path, "tests: ./a.json\n")) == ["a"]
    assert ids(load(tmp_path, "tests: ['file://*.json']\n")) == ["a"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x*.yaml", "tests[1]: 'file://x*.yaml' matches no test file"),
        ("empty.yaml", "empty.yaml holds no tests"),
        ("none.jsonl", "none.jsonl holds no tests"),
        ("head.csv", "head.csv holds no tests"),
    ],
)
def test_a_file_without_a_test_beside_tests_is_no_pass(tmp_path: Path, name: str, said: str) -> None:
    write(tmp_path, {"empty.yaml": "", "none.jsonl": "\n", "head.csv": "id,input\n"})
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, f"tests: [{{id: a, input: hi, criteria: c}}, 'file://{name}']\n")
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("text", "files", "said"),
    [
        ("tests: ./c.txt\n", {"c.txt": "x"}, "suite.eval.yaml:1:8: tests: './c.txt' ends in .txt; tests are read from .yaml"),
        ("tests: ./c.json\n", {"c.json": "[{id: a}]"}, "c.json:1:3: is not JSON"),
        ("tests: ./c.json\n", {"c.json": '[\n{"id": "a", "input": "x"}]'}, "c.json:2:1: test 'a': there is nothing to check"),
        ("tests: ./c.json\n", {"c.json": '[{"id": "a", "id": "b"}]'}, "c.json:1:1: is not JSON"),
        ("tests: ./none.yaml\n", {}, "suite.eval.yaml:1:8: tests: file './none.yaml' does not exist (tried none.yaml)"),
        ("tests: [file://c.yaml]\n", {"c.yaml": "a: 1\n"}, "c.yaml:1:1: must be a list (a YAML array) of tests"),
        ("tests: [file://c.yaml]\n", {"c.yaml": "- {id: a, input: hi, criteria: c}\n- {id: b}\n"}, "c.yaml:2:3: test 'b': input"),
        ("tests: [file://c.yaml]\n", {"c.yaml": "- file://c.yaml\n"}, "c.yaml:1:3: c.yaml[0]: c.yaml refers to itself"),
        (
            "tests: ./c.jsonl\n",
            {"c.jsonl": '{"id":"a","input":"hi","criteria":"c"}\n{"id":\n'},
            "c.jsonl:2:7: Malformed JSONL at line 2",
        ),
        ("tests: ./c.jsonl\n", {"c.jsonl": '{"id":"a","input":"hi","criteria":NaN}\n'}, "c.jsonl:1:1: Malformed JSONL at line 1"),
        ("tests: ./c.jsonl\n", {"c.jsonl": '{"id":"a","input":"hi","goal":"c"}\n'}, "c.jsonl:1:24: test 'a': unknown key 'goal'"),
        (
            "tests: ./c.jsonl\n",
            {"c.jsonl": '{"id":"a","assert":[],"assert":[]}\n'},
            "c.jsonl:1:1: Malformed JSONL at line 1: the key 'assert' stands twice",
        ),
        ("tests: ./c.jsonl\n", {"c.jsonl": "[1]\n"}, "c.jsonl:1:1: line 1: must be a mapping with id and input"),
        ("tests: https://host/c.yaml\n", {}, "is a URL; only files can be named"),
        ("tests: 'file://{a,b'\n", {}, "matches no test file"),
    ],
)  # fmt: skip
def test_a_mistake_in_another_file_is_placed_there(tmp_path: Path, text: str, files: dict[str, str], said: str) -> None:
    found = problems(tmp_path, text, files)
    assert any(said in line for line in found), found


def test_a_test_named_in_two_files_names_both(tmp_path: Path) -> None:
    found = problems(tmp_path, "tests: [file://c.yaml, file://d.yaml]\n", {"c.yaml": CASES, "d.yaml": CASES})
    assert found[0] == "d.yaml:1:8: duplicate test id 'a' (first at c.yaml:1); rename one"


def test_references_are_relative_to_the_file_that_names_them_then_to_the_suite(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "sub/cases.yaml": "- {id: a, input: hi, assert: [{type: llm_judge, prompt: ./own.md}, "
            "{type: llm_judge, name: b, prompt: ./shared.md}]}\n",
            "sub/own.md": "own {{ answer }}",
            "shared.md": "shared {{ answer }}",
        },
    )
    assert ids(load(tmp_path, "tests: [file://sub/cases.yaml]\n")) == ["a"]


class TestJsonLines:
    def test_the_sidecar_supplies_the_rest(self, tmp_path: Path) -> None:
        write(
            tmp_path,
            {
                "cases.jsonl": '{"id":"a","input":"hi"}\n',
                "cases.yaml": "description: d\ndataset: desk\nexecution:\n  target: x\n  evaluators: [{type: is_json}]\n",
            },
        )
        suite = load_suite(tmp_path / "cases.jsonl")
        assert (suite.tests[0].dataset, suite.target) == ("desk", "x")
        assert [item.type for item in suite.tests[0].asserts] == ["is_json"]

    def test_a_sidecar_cannot_hold_tests_too(self, tmp_path: Path) -> None:
        write(tmp_path, {"cases.jsonl": '{"id":"a","input":"hi","criteria":"c"}\n', "cases.yaml": "tests: []\n"})
        with pytest.raises(ConfigError, match=r"cases\.yaml:1:1: cases.jsonl holds the tests"):
            load_suite(tmp_path / "cases.jsonl")

    def test_a_sidecar_may_name_the_file_it_stands_beside(self, tmp_path: Path) -> None:
        lines = '{"id":"a","input":"hi","criteria":"c"}\n'
        write(tmp_path, {"cases.jsonl": lines, "cases.yaml": "tests: ./cases.jsonl\ndataset: desk\n"})
        suite = load_suite(tmp_path / "cases.jsonl")
        assert (ids(suite), suite.tests[0].dataset) == (["a"], "desk")
        assert "tests is deprecated; remove it: cases.jsonl is what is run" in str(suite.warnings[0])

    def test_a_line_that_is_not_json_is_named(self, tmp_path: Path) -> None:
        write(tmp_path, {"cases.jsonl": '{"id":"a","input":"hi","criteria":"c"}\n{"id"\n'})
        with pytest.raises(ConfigError, match=r"cases\.jsonl:2:6: Line 2: Invalid JSON - .*; correct line 2"):
            load_suite(tmp_path / "cases.jsonl")

    def test_unicode_line_separators_do_not_end_a_line(self, tmp_path: Path) -> None:
        write(tmp_path, {"cases.jsonl": '{"id":"a","input":"one\u2028two","criteria":"c"}\n'})
        assert load_suite(tmp_path / "cases.jsonl").tests[0].question == "one\u2028two"
