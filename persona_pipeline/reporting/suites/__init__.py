"""Eval suite runs as JUnit XML, HTML and a table."""
