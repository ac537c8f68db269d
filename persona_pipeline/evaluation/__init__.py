"""Evaluation: a world is read, the judge is asked, what came of it is decided and written"""
