"""The numbers themselves: what a comparison says of one drawn office, to six digits, whatever is known of weeks and judge.

They are what the code said when they were written down: a change of method changes them, and has to say why.
"""

import pytest

from persona_pipeline.guard.baselines.falls import settled, to_confirm
from persona_pipeline.guard.baselines.models import Baseline
from tests.baselines.worlds import LEVELS, Office, beside

DOWN = {"adherence": {key: level - 2.5 for key, level in LEVELS.items()}}
COLLAPSED = {"consistency": {"p2": 0.0}}
MOVED = {"bob": [0.4, -0.9, 1.2], "cyd": [-0.3, 0.8, 0.9]}
# Judgments a claim, windows of the agent and of each other, spread of weeks, what fell.
CASES = {
    "nothing fell": (3, 1, 1, 0.5, {}),
    "fleet": (3, 1, 6, 0.5, DOWN),
    "judged once": (1, 1, 1, 0.4, DOWN),
    "shrunk": (3, 2, 6, 0.5, DOWN),
    "own": (5, 6, 6, 0.8, COLLAPSED),
    "by itself": (3, 9, 9, 0.6, COLLAPSED),
    "own beside one": (3, 4, 1, 0.7, DOWN),
    "few in a baseline, twice now": (2, 2, 2, 0.3, COLLAPSED),
    "restless": (3, 3, 1, 1.4, COLLAPSED),
    "outliers": (3, 2, 2, 0.3, {"fluency": {"p1": 1.0}}),
}  # fmt: skip


def office(name: str) -> tuple[dict[str, Baseline], dict]:
    samples, own, others, week, levels = CASES[name]
    drawn = Office(40, week=week, samples=samples, judge=1.7 if name == "outliers" else 0.8)
    fleet = {who: drawn.baseline(who, own if who == "ann" else others) for who in ("ann", "bob", "cyd", "dan")}
    return fleet, {"ann": beside(fleet["ann"], drawn.window(levels))}


def rows(name: str) -> list[str]:
    fleet, run = office(name)
    comparison = settled(run, fleet=fleet, moved=MOVED)["ann"]
    asked = to_confirm(run, fleet=fleet).get("ann", {})
    found = []
    for name, item in comparison.dimensions.items():
        sight, claim = item.sight, item.claims["p2"]
        assert sight is not None and item.interval is not None
        numbers = (
            *(item.p_value, *item.interval, sight.detectable, sight.judge, sight.week, sight.limit, sight.judgments),
            *(sight.windows_needed, len(asked.get(name, ())), claim.delta, claim.p_value, *claim.interval),
            claim.detectable,
        )
        found.append(" ".join([item.status, *("-" if n is None else f"{n + 0.0:.5g}" for n in numbers)]))
    return found


# Of a dimension p, interval, what it sees, judge, week, limit, judgments and windows needed, claims asked again; of p2 the same.
EXPECTED = """
nothing fell:
ok 1 -2.2848 1.3515 3.8912 0.34441 0.53817 3.65 - - 0 -0.66667 1 -3.0949 1.7616 6.6082
ok 1 -2.0761 1.5428 3.8571 0.34441 0.53817 3.618 - - 0 -0.66667 1 -3.143 1.8097 6.7504
ok 1 -1.415 2.3483 4.1481 0.34441 0.53817 3.891 - - 0 0.66667 1 -1.4201 2.7534 5.5167
fleet:
regressed 0.026384 -4.951 -1.449 3.6344 0.3673 0.5331 3.377 - - 5 -2.3333 1 -4.7843 0.11764 5.8748
ok 1 -1.151 2.351 3.6344 0.3673 0.5331 3.377 - - 0 1 1 -1.451 3.451 5.8748
ok 1 -1.6844 1.8177 3.6344 0.3673 0.5331 3.377 - - 0 -0.33333 1 -2.7843 2.1176 5.8748
judged once:
undecided 0.1221 -4.3692 -0.8308 3.7024 - 0.57373 3.7024 - - 5 -3 1 -5.759 -0.24099 7.6673
ok 1 -1.9492 1.5492 3.6276 - 0.57373 3.6276 - - 0 2 1 -0.98728 4.9873 8.4763
ok 1 -1.9411 1.5411 3.5977 - 0.57373 3.5977 - - 0 0 1 -3.3494 3.3494 9.8421
shrunk:
regressed 0.0014576 -4.3057 -1.761 2.5869 0.365 0.44732 2.3402 - - 5 -2.6667 1 -4.5911 -0.74225 4.5579
ok 1 -1.3723 1.1723 2.5869 0.365 0.44732 2.3402 - - 0 0 1 -1.9244 1.9244 4.5579
ok 1 -1.1723 1.3723 2.5869 0.365 0.44732 2.3402 - - 0 0.5 1 -1.4244 2.4244 4.5579
own:
ok 1 -0.9382 0.9382 1.842 0.46365 0.38154 1.6185 - - 0 -1.3 1 -3.1888 0.8554 4.7242
regressed 0.011967 -2.6049 -0.7285 1.842 0.46365 0.38154 1.6185 - - 0 -7.2 1.7328e-09 -9.3554 -5.3112 4.7242
ok 1 -0.7382 1.1382 1.842 0.46365 0.38154 1.6185 - - 0 1.1667 1 -0.6888 3.3554 4.7242
by itself:
ok 1 -0.62248 0.8447 1.4329 0.37384 0.27629 1.2462 - - 0 0.2963 1 -1.2977 1.8903 3.7153
regressed 0.002232 -2.2003 -0.73308 1.4329 0.37384 0.27629 1.2462 - - 5 -7.3333 9.3034e-16 -8.9273 -5.7393 3.7153
ok 1 -0.85211 0.61507 1.4329 0.37384 0.27629 1.2462 - - 0 -0.074074 1 -1.6681 1.5199 3.7153
own beside one:
regressed 6.884e-34 -3.3244 -2.4422 1.1893 0.34824 0 - - - 5 -2.5 1 -4.2829 -0.71714 4.325
ok 1 -0.057757 0.82442 1.1893 0.34824 0 - - - 0 0.66667 1 -1.1162 2.4495 4.325
ok 0.94332 -0.82442 0.057757 1.1893 0.34824 0 - - - 0 -0.66667 1 -2.4495 1.1162 4.325
few in a baseline, twice now:
ok 1 -1.0016 0.90163 1.9278 0.35039 0.27701 1.4369 - - 0 -0.25 1 -1.8074 1.3074 3.7373
regressed 0.017047 -2.7016 -0.79837 1.9278 0.35039 0.27701 1.4369 - - 5 -6.75 9.6774e-10 -8.3074 -5.1926 3.7373
ok 1 -1.7516 0.15163 1.9278 0.35039 0.27701 1.4369 - - 0 -1.25 1 -2.8074 0.30739 3.7373
restless:
ok 1 -1.9623 0.5401 2.6197 0.34373 0.45527 2.4014 - - 0 2.1111 1 -1.326 5.5482 8.4743
ok 0.063358 -3.2957 -0.79323 2.6197 0.34373 0.45527 2.4014 - - 5 -7.7778 0.013883 -11.215 -4.3407 8.4743
ok 1 -2.1179 0.38454 2.6197 0.34373 0.45527 2.4014 - - 0 -1.3333 1 -4.7704 2.1038 8.4743
outliers:
ok 1 -2.2308 1.2308 3.5601 0.76624 0.49314 2.65 - - 0 -8.8818e-16 1 -3.4896 2.4896 7.1616
ok 1 -1.9308 1.5308 3.5601 0.76624 0.49314 2.65 - - 0 -1.6667 1 -4.9896 0.98963 7.1616
ok 1 -2.9308 0.53083 3.5601 0.76624 0.49314 2.65 - - 5 -0.83333 1 -2.4896 3.4896 7.1616
"""


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_of_a_drawn_office(name: str) -> None:
    expected = EXPECTED.split(f"{name}:\n")[1].splitlines()
    for found, line in zip(rows(name), expected, strict=False):
        for one, other in zip(found.split(), line.split(), strict=True):
            assert one == other or float(one) == pytest.approx(float(other), rel=2e-4, abs=1e-12), (found, line)
