"""The suite format: models, loading, files and problems."""
