"""Golden baselines: the scores that agents are compared with."""
