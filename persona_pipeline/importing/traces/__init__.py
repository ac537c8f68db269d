"""OpenTelemetry and OpenInference traces as messages: read from files, or collected over OTLP/HTTP."""
