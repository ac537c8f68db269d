"""The corrections over HTTP, for agents in any language."""
