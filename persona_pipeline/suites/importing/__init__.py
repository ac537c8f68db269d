"""Eval files of other tools, made into suites; what has no counterpart is named with its place."""
