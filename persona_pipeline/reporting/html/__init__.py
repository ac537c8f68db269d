"""The self-contained HTML report: one file, no remote asset, safe with any text in it."""

from persona_pipeline.reporting.html.render import render_html

__all__ = ["render_html"]
