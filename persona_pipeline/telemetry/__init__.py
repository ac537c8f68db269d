"""Scores as OpenTelemetry events."""
