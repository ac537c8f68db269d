"""The sample project is run by its tests, and is no part of ours."""

collect_ignore = ["project"]
