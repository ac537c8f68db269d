"""Scorers: one file a dimension, named by the dimension's declaration."""
