"""Recorded judgments: files of JSON lines, and the judge that answers from them."""
