"""The hook that runs inside a suite's Python programs; the folder is the first of their ``PYTHONPATH``."""
