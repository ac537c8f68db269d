"""Reports in an object store: fsspec's own one, in memory, stands for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from upath import UPath

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.defs.platform.assets import reports_folder, write_texts

STORE = "memory://bucket"


@pytest.fixture
def store() -> Iterator[UPath]:
    folder = UPath(STORE)
    yield folder
    folder.fs.rm("/bucket", recursive=True)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({}, "world/.persona/reports", id="in the world"),
        pytest.param({"PERSONA_STATE": "elsewhere"}, "elsewhere/reports", id="with all else that is made"),
        pytest.param({"PERSONA_STATE": "elsewhere", "PERSONA_REPORTS": "pages"}, "pages", id="where it is said"),
        pytest.param({"PERSONA_REPORTS": f"{STORE}/reports"}, f"{STORE}/reports", id="in a store"),
    ],
)
def test_where_reports_go(variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    get_settings.cache_clear()
    assert str(reports_folder(Path("world"), get_settings())) == expected


def test_a_store_nobody_knows_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONA_REPORTS", "nowhere://bucket")
    get_settings.cache_clear()
    with pytest.raises(ConfigError, match=r"PERSONA_REPORTS is 'nowhere://bucket'.*pip install"):
        reports_folder(Path("world"), get_settings())


def test_reports_are_written_to_a_store(store: UPath) -> None:
    folder = write_texts(store / "reports", {"report.html": "<p>ä</p>"})  # pyright: ignore[reportArgumentType]
    assert (folder / "report.html").read_text(encoding="utf-8") == "<p>ä</p>"
