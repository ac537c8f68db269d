"""Who serves the judge's model: one small object a provider, found by name."""
