"""The look that all pages share: colours in light and dark, type, focus."""

from functools import lru_cache
from importlib.resources import files


@lru_cache
def theme_css() -> str:
    """Return the style sheet that every page begins with."""
    return files(__name__).joinpath("theme.css").read_text(encoding="utf-8")
