"""An OTLP/HTTP endpoint that stores the messages of the traces it is sent before it answers."""
