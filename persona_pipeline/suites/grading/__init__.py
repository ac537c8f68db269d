"""Grading an answer: the base of asserts, their grades, results, and questions to the judge."""
