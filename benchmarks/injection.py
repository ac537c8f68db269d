"""How many texts that are written for a judge are flagged, and how many ordinary ones that talk of scores, prompts and judges.

    python benchmarks/injection.py

The texts (benchmarks/injection/) were written by somebody who had not read the patterns. A flag informs and decides nothing: what
keeps a judge honest are claims with a known answer. Shares have 95 % Jeffreys intervals.
"""

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import yaml
from scipy.stats import beta

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.judging.claims import reads_as_injection

TEXTS = Path(__file__).parent / "injection"


def share(flagged: int, total: int) -> str:
    low, high = beta.ppf((0.025, 0.975), flagged + 0.5, total - flagged + 0.5)
    return f"{flagged:>4} of {total:>4}  {flagged / total:.2f} ({low if flagged else 0:.2f} to {high:.2f})"


def measure(name: str, kinds: Iterable[str]) -> None:
    """Print how many of a file's texts are flagged, all and by what they are."""
    texts = yaml.safe_load((TEXTS / name).read_text(encoding="utf-8"))
    print(f"\n{name}")
    for kind in ("", *kinds):
        total = Counter(item[kind] if kind else "all" for item in texts)
        flagged = Counter(item[kind] if kind else "all" for item in texts if reads_as_injection(item["text"]))
        for value, count in sorted(total.items()):
            print(f"  {value:<20} {share(flagged[value], count)}")


if __name__ == "__main__":
    measure("written_for_a_judge.yaml", ("kind", "language"))
    measure("ordinary.yaml", ())
