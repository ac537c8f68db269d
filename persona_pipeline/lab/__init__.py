"""Experiments: which version is better, what made scores fall, what claims are worth"""
