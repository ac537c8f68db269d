"""Golden files of the reports. Refresh them with: REFRESH_GOLDENS=1 pytest tests/reporting"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from persona_pipeline.guard.report import RunReport
from tests.reporting.sample import sample_report

GOLDENS = Path(__file__).parent / "goldens"


@pytest.fixture
def report() -> RunReport:
    return sample_report()


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare a text with the golden file of this name, or write that file when REFRESH_GOLDENS is set."""

    def compare(name: str, text: str) -> None:
        path = GOLDENS / name
        if os.environ.get("REFRESH_GOLDENS"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        assert text == path.read_text(encoding="utf-8"), f"{name} changed; if it should have: REFRESH_GOLDENS=1"

    return compare
