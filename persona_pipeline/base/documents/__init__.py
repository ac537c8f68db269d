"""Strict YAML 1.2 with positions, and strict JSON: what every configuration file of the project is read with."""
