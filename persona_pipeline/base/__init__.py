"""What every room stands on: errors, settings, strict documents, the database, HTTP, telemetry"""
