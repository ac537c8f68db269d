"""Versions of a world: which of two is better, and what changed between a good one and a bad one."""
