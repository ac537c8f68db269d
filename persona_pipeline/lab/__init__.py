"""Experiments: comparisons of versions, causes of drops, interviews, and tests of claims."""
