"""Judge providers: one small object each, found by name."""
