"""Golden baselines: what the scores should not fall below."""
