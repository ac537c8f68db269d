"""Foundations of every room: errors, settings, strict documents, the database, HTTP, telemetry"""
