"""Recorded judgments: files of JSON lines, and what is answered from them."""
