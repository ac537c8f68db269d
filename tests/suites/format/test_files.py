"""Which files a suite may name."""

from pathlib import Path

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites import load_suite
from persona_pipeline.suites.format.files import FileError, Files, default_roots, expand_braces
from tests.suites.support import write

CASES = "- {id: a, input: hi, criteria: c}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write(
        tmp_path,
        {
            "secret.yaml": CASES,
            "project/.git/HEAD": "",
            "project/shared/cases.yaml": CASES,
            "project/suites/near.yaml": CASES,
            "project/suites/with space/ä.yaml": CASES,
        },
    )
    (tmp_path / "project/suites/link.yaml").symlink_to(tmp_path / "secret.yaml")
    (tmp_path / "project/suites/inner.yaml").symlink_to(tmp_path / "project/shared/cases.yaml")
    (tmp_path / "project/suites/loop.yaml").symlink_to(tmp_path / "project/suites/loop.yaml")
    (tmp_path / "project/suites/folder.yaml").mkdir()
    return tmp_path / "project"


def suite(project: Path, reference: str) -> Path:
    path = project / "suites" / "s.eval.yaml"
    path.write_text(f"tests: ['{reference}']\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "reference",
    [
        "file://near.yaml",
        "file://./near.yaml",
        "file://../shared/cases.yaml",
        "file://with space/ä.yaml",
        "file://with%20space/%C3%A4.yaml",
        r"file://..\shared\cases.yaml",
        "file://inner.yaml",
        "file://{project}/shared/cases.yaml",
    ],
    ids=["near", "dot", "parent", "space", "percent", "backslash", "link inside", "absolute"],
)
def test_files_of_the_project_can_be_named(project: Path, reference: str) -> None:
    path = suite(project, reference.replace("{project}", str(project)))
    assert len(load_suite(path, default_roots(path)).tests) == 1


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("file://../../secret.yaml", "lies outside"),
        ("file://{project}/../secret.yaml", "lies outside"),
        ("file://link.yaml", "lies outside"),
        ("file://../../secret*.yaml", "lies outside"),
        ("file:///etc/hosts.yaml", "does not exist"),
        ("file://loop.yaml", "no usable path|does not exist"),
        ("file://folder.yaml", "is not a regular file"),
        ("file://http://host/x.yaml", "does not exist"),
        ("file://a\\0.yaml", "does not exist"),
    ],
)
def test_files_elsewhere_cannot(project: Path, reference: str, said: str) -> None:
    path = suite(project, reference.replace("{project}", str(project)))
    with pytest.raises(ConfigError, match=said):
        load_suite(path, default_roots(path))


def test_a_further_root_or_none_lets_a_folder_in(project: Path) -> None:
    path = suite(project, "file://../../secret.yaml")
    for roots in ([*default_roots(path), project.parent], None):
        assert len(load_suite(path, roots).tests) == 1


def test_roots_are_the_repository_or_else_the_folder(project: Path) -> None:
    assert default_roots(project / "suites" / "s.yaml") == (project,)
    lonely = project.parent / "lonely"
    lonely.mkdir()
    assert default_roots(lonely / "s.yaml") == (lonely,)


def test_references_do_not_depend_on_the_current_folder(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = suite(project, "file://near.yaml")
    monkeypatch.chdir(tmp_path)
    assert len(load_suite(path).tests) == 1
    monkeypatch.chdir(project)
    assert len(load_suite(Path("suites/s.eval.yaml")).tests) == 1


def test_a_file_that_is_turned_elsewhere_after_it_was_found_is_not_read(project: Path) -> None:
    files = Files((project,))
    found = files.find("inner.yaml", [project / "suites"])
    found.unlink()
    found.symlink_to(project.parent / "secret.yaml")
    with pytest.raises(FileError, match="lies outside"):
        files.read(found)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a.yaml", ["a.yaml"]),
        ("{a,b}.yaml", ["a.yaml", "b.yaml"]),
        ("x{a,b}{c,d}", ["xac", "xad", "xbc", "xbd"]),
        ("{a}", ["{a}"]),
        ("{a", ["{a"]),
        ("a}", ["a}"]),
        ("{,x}y", ["xy", "y"]),
    ],
)
def test_braces(pattern: str, expected: list[str]) -> None:
    assert sorted(expand_braces(pattern)) == expected


def test_a_brace_bomb_is_refused() -> None:
    with pytest.raises(FileError, match="expands to more than"):
        expand_braces("{a,b}" * 30)
