"""Tests of claims: planted faults, noise, and drafts from messages."""
