"""Asking a provider's model."""
