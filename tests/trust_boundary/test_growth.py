"""No text makes any stage worse than linear."""

import pytest

from tests.trust_boundary.growth import HOSTILE, STAGES, growth

SHORT, LONG = 2_000, 16_000
MOST = 1.5
# Quicker than this a text of 16,000 characters stalls nothing, and the clock cannot tell how it grows.
NOTHING_SECONDS = 0.01


@pytest.mark.parametrize("stage", STAGES)
def test_no_text_makes_a_stage_worse_than_linear(stage: str) -> None:
    worse = []
    for kind in HOSTILE:
        measured = growth(stage, kind, (SHORT, LONG), tries=1)
        if measured.seconds[-1][1] > NOTHING_SECONDS and measured.exponent > MOST:
            measured = growth(stage, kind, (SHORT, LONG), tries=3)
            if measured.exponent > MOST:
                worse.append(f"{kind}: {measured.exponent:.2f}, {measured.seconds[-1][1]:.2f} s")
    assert not worse, f"{stage} grows faster than linear: {'; '.join(worse)}"
