"""How often the language of lines is recognised, and agreement in it, in ten languages.

    python benchmarks/languages.py [detection] [agreement]

Without arguments everything runs, in about a minute. The lines are those of ``benchmarks/everyday/<language>.yaml``, written by
others than those who wrote the lexicons; these were tuned on every other line, so the odd ones are shown by themselves. Running
text is the everyday language of the package and what an agent of each language said in 20 conversations. Intervals are 95 %
Wilson intervals.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.scoring.style.features import everyday
from persona_pipeline.scoring.text.agreement import agreement_ratio
from persona_pipeline.scoring.text.tokens import language_of, languages_of

LANGUAGES = ("ar", "de", "en", "es", "fr", "it", "ja", "nl", "pt", "zh")
TURNS = PROJECT / "tests" / "scoring" / "text" / "agreement_lines" / "ten_languages.yaml"


def lines_of(language: str) -> dict[str, Any]:
    """Return the lines of a language by kind."""
    return yaml.safe_load((PROJECT / "benchmarks" / "everyday" / f"{language}.yaml").read_text(encoding="utf-8"))


def share(hits: int, total: int) -> str:
    """Return a share with its Wilson interval."""
    from scipy.stats import binomtest

    low, high = binomtest(hits, total).proportion_ci(method="wilson")
    return f"{hits / total:.1%} [{100 * low:.1f}, {100 * high:.1f}] of {total:,}"


def windows(lines: Sequence[Any], length: int) -> Iterator[Sequence[Any]]:
    yield from (lines[start : start + length] for start in range(len(lines) - length + 1))


def agreeing(language: str, lines: Sequence[str]) -> list[bool]:
    """Return which lines agree, read as lines of a language, as the evaluation reads a channel in it."""
    # Beside nine others of the language: one line alone may be too short to tell which it is.
    rest = yaml.safe_load(TURNS.read_text(encoding="utf-8"))[language]["normal"][:9]
    return [agreement_ratio([line, *rest]) > 0 for line in lines]


def detection() -> None:
    print("\nWhich language lines are in: told / unknown / told wrongly, by how many lines together\n")
    print("| language | 1 line | 3 lines | 10 lines | told wrongly as |\n|---|--:|--:|--:|---|")
    wrong_of_all: Counter[str] = Counter()
    for language in LANGUAGES:
        kinds, cells, wrong = lines_of(language), [], Counter[str]()
        for count in (1, 3, 10):
            told = Counter(
                language_of(kinds[kind][start : start + count])
                for kind in ("voice", "assistant", "courtesies", "corporate")
                for start in range(0, len(kinds[kind]) - count + 1, count)
            )
            found, unknown, total = told.pop(language, 0), told.pop("unknown", 0), told.total()
            wrong += told
            n = found + unknown + total
            cells.append(f"{found / n:.3f} / {unknown / n:.3f} / {total / n:.3f} of {n}")
        wrong_of_all += wrong
        print(f"| {language} | {' | '.join(cells)} | {', '.join(f'{k} {v}' for k, v in wrong.items()) or '–'} |")
    mixed, total = 0, 0
    for first in LANGUAGES:
        for second in LANGUAGES:
            if first < second:
                both = [
                    line
                    for pair in zip(lines_of(first)["voice"], lines_of(second)["voice"], strict=True)
                    for line in pair
                ]
                for start in range(0, 200, 10):
                    total += 1
                    mixed += set(languages_of(both[start : start + 10])) == {first, second}
    print(f"\nBoth languages of ten lines, five of each, are told: {share(mixed, total)}")


def agreement() -> None:
    print("\nAgreement: recall and false alarms\n")
    print("| language | agreeing, odd lines | all | others, odd lines | all | running text | windows of ten above .6 |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    sums = Counter[str]()
    for language in LANGUAGES:
        kinds = lines_of(language)
        agree, normal = agreeing(language, kinds["agree"]), agreeing(language, kinds["normal"])
        background = [line for _, line in everyday(kinds["voice"])[1]]
        text = {name: agreeing(language, kinds[name]) for name in ("voice", "assistant")} | {
            "background": agreeing(language, background)
        }
        running = [hit for hits in text.values() for hit in hits]
        above = [sum(window) > 6 for hits in text.values() for window in windows(hits, 10)]
        cells = [share(sum(hits), len(hits)) for hits in (agree[1::2], agree, normal[1::2], normal, running, above)]
        print(f"| {language} | {' | '.join(cells)} |", flush=True)
        for name, hits in (("agreeing", agree[1::2]), ("others", normal[1::2]), ("windows", above)):
            sums[name] += sum(hits)
            sums[f"{name} of"] += len(hits)
    for name in ("agreeing", "others", "windows"):
        print(f"{name}, odd lines of all languages: {share(sums[name], sums[f'{name} of'])}")


PARTS = {"detection": detection, "agreement": agreement}


def main() -> None:
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
