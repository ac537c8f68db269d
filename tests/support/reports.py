"""A run's report as a terminal that is no terminal gets it."""

from persona_pipeline.guard.report import RunReport
from persona_pipeline.reporting.pages.evaluation import short_page
from persona_pipeline.reporting.terminal import page_text


def report_text(report: RunReport, *, verbose: bool = False) -> str:
    """Return a run's table and what matters most, ``verbose`` every finding, as plain text without colour."""
    return page_text(short_page(report, verbose=verbose))
