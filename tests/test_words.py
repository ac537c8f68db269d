"""One word for one thing: phrases that were given up stand nowhere where a user reads."""

from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
# What was said once, and what is said now.
GIVEN_UP = {
    "nobody knows how far": "not validated: 0 human labels",
    "do not trust its green": "low power: drops below 3.5 would be missed",
    "as far as these windows tell": "no slow trend",
    "dullest needs": "messages needed to detect 1.0",
    "not clean.": "what went wrong",
    "read those first": "mostly: X, Y",
    "95 % sure of": "95 % CI of the drop",
    "stands in the message": "quote found",
    "should be so that": "Missing: ...",
    "should not be so that": "Avoid: ...",
    "of the good": "of good ones",
    "asked the same of both": "not affected",
    "fires on itself": "low on healthy data",
    "falls silent": "becomes n/a",
    "catches nothing": "never fails",
    "points the judge gives more": "judge bias",
    "people among themselves": "inter-annotator agreement",
    "to halve these intervals": "labels needed to halve the CI",
    "judge and week": "judge noise and weekly variation",
    "corrected for:": "multiple-testing correction",
    "what this run could have seen": "detection limits",
    "who serves the judge": "judge providers",
    "what is safe against whom": "security",
}


def read_by_users() -> Iterator[tuple[Path, str]]:
    for folder, endings in (("persona_pipeline", ("*.py", "*.j2", "*.js")), ("docs", ("*.md",))):
        for ending in endings:
            for path in sorted((PROJECT / folder).rglob(ending)):
                yield path, path.read_text(encoding="utf-8").lower()
    for name in ("README.md", "action.yml", "CONTRIBUTING.md"):
        yield PROJECT / name, (PROJECT / name).read_text(encoding="utf-8").lower()


@pytest.mark.parametrize("phrase", GIVEN_UP)
def test_what_was_said_once_is_said_nowhere(phrase: str) -> None:
    found = [path.relative_to(PROJECT).as_posix() for path, text in read_by_users() if phrase in text]
    assert not found, f"say {GIVEN_UP[phrase]!r} instead"
