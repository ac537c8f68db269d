"""A test of claims in the format asked for."""

import json
from collections.abc import Mapping
from typing import Any

from persona_pipeline.reporting.claims.sheets import Page, html_of, markdown_of, text_of

FORMATS = ("table", "json", "markdown", "html")


def render_page(page: Page, data: Mapping[str, Any], format: str, width: int | None = None) -> str:
    """Return the page (``data``: the same as plain JSON) as ``table``, ``json``, ``markdown`` or ``html``.

    Args:
        width: columns of the terminal a table is for; None: any.
    """
    if format == "json":
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    return text_of(page, width) if format == "table" else {"markdown": markdown_of, "html": html_of}[format](page)
