"""The Python API, ``import persona_pipeline as pp``: calls with results for notebooks and data frames."""
