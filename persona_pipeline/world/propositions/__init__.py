"""Propositions: claims about an agent, read from YAML and merged."""
