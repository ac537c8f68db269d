"""What ``import persona_pipeline as pp`` offers: the domain's own calls, with results for notebooks and data frames."""
