"""What a window can see."""

import numpy as np

from persona_pipeline.baselines.noise import Drops
from persona_pipeline.baselines.variance import Numbers


def interval(drops: Drops, confidence: float = 0.95) -> tuple[Numbers, Numbers]:
    """Return the two-sided confidence interval of each drop (NaN: not tested)."""
    from scipy.special import stdtrit

    reach = stdtrit(drops.degrees, (1 + confidence) / 2) * np.sqrt(drops.variance)
    return drops.drop - reach, drops.drop + reach
