"""Continuous evaluation for LLM personas."""

__version__ = "0.1.0"
