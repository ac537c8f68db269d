"""Golden baselines: what the scores should not fall below."""

from persona_pipeline.baselines.golden import (
    BASELINES,
    Watched,
    baseline_path,
    captured,
    find_baseline,
    load_baseline,
    save_baseline,
    watched_agents,
)
from persona_pipeline.baselines.models import (
    Baseline,
    BaselineComparison,
    DimensionComparison,
    PropositionDrop,
    Regression,
)
from persona_pipeline.baselines.regression import (
    PROPOSITION_DELTA,
    REGRESSION_DELTA,
    check_delta,
    compare,
    find_regressions,
    is_covered,
)

__all__ = [
    "BASELINES",
    "PROPOSITION_DELTA",
    "REGRESSION_DELTA",
    "Baseline",
    "BaselineComparison",
    "DimensionComparison",
    "PropositionDrop",
    "Regression",
    "Watched",
    "baseline_path",
    "captured",
    "check_delta",
    "compare",
    "find_baseline",
    "find_regressions",
    "is_covered",
    "load_baseline",
    "save_baseline",
    "watched_agents",
]
