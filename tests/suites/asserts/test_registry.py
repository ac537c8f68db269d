"""Adding a type of assert."""

import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import offered
from persona_pipeline.suites import Assert, Context, Grade, Output, register
from persona_pipeline.suites.format import registry
from tests.conftest import PROJECT
from tests.suites.support import run, suite_of


@pytest.fixture(autouse=True)
def _types_of_this_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry.TYPES, "loaded", {})
    offered.cache_clear()
    yield
    offered.cache_clear()


class Shouts(Assert):
    """The answer is in capitals."""

    least: float = 0.5

    def grade(self, output: Output, context: Context) -> Grade:
        share = sum(letter.isupper() for letter in output.text) / max(1, len(output.text))
        return Grade.of(share >= self.least, "It shouts.", "It does not shout.")


def test_a_type_is_a_class_and_a_name(tmp_path: Path) -> None:
    register("shouts", Shouts)
    suite = suite_of(tmp_path, {"type": "shouts", "least": 0.9, "required": True})
    assert suite.tests[0].asserts[0].dump() == {
        "name": "shouts", "type": "shouts", "weight": 1.0, "required": True, "least": 0.9
    }  # fmt: skip
    assert run(suite, {"t": "HELLO"}).exit_code == 0
    assert run(suite, {"t": "hello"}).exit_code == 1
    with pytest.raises(ConfigError, match="unknown key 'leest'; did you mean 'least'"):
        suite_of(tmp_path, {"type": "shouts", "leest": 1})


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ConfigError, match="'contains' is taken by Contains"):
        register("contains", Shouts)


def package(folder: Path, target: str) -> None:
    (folder / "shouting.py").write_text(
        textwrap.dedent("""
            from persona_pipeline.suites import Assert, Grade

            class Whispers(Assert):
                def grade(self, output, context):
                    return Grade.of(output.text.islower(), "It whispers.", "It does not whisper.")
        """),
        encoding="utf-8",
    )
    info = folder / "shouting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[persona_pipeline.asserts]\nwhispers = {target}\n", encoding="utf-8")


def test_an_installed_package_adds_types_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "shouting:Whispers")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run(suite_of(tmp_path, {"type": "whispers"}), {"t": "psst"}).exit_code == 0
    sys.modules.pop("shouting", None)


@pytest.mark.parametrize("target", ["shouting:Nothing", "shouting:Grade", "no_such_module:X"])
def test_an_entry_point_that_is_no_assert_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    package(tmp_path, target)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="assert type 'whispers'"):
        suite_of(tmp_path, {"type": "whispers"})
    sys.modules.pop("shouting", None)


def test_every_built_in_type_has_a_description_for_readers() -> None:
    for name in registry.BUILT_IN:
        model = registry.find_type(name)
        assert model is not None
        assert (model.__doc__ or "").strip(), name


def test_every_class_that_grades_is_a_registered_type() -> None:
    folder = PROJECT / "persona_pipeline/suites/asserts"
    modules = [import_module(f"persona_pipeline.suites.asserts.{path.stem}") for path in sorted(folder.glob("*.py"))]
    classes = {item for module in modules for item in vars(module).values() if isinstance(item, type)}
    written = {item for item in classes if issubclass(item, Assert) and "grade" in vars(item)}
    # Functions are asserts of suites in Python only.
    assert {item.__name__ for item in written - {registry.find_type(name) for name in registry.BUILT_IN}} == {
        "Function",
        "Assert",
        "SeveralLimits",
    }
