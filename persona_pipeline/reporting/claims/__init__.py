"""What a test of claims, or their noise, is shown as: a terminal, Markdown, one HTML page."""
