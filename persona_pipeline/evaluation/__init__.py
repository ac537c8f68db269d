"""Evaluation: a world is read, the judge is asked, runs are decided and written"""
