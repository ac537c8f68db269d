"""The live judge as the gate needs it: quick, without a cache, given up before the gate's own deadline."""

from dataclasses import replace

from persona_pipeline.corrections.gate import DEADLINE_SECONDS
from persona_pipeline.judging.backend import AnthropicBackend
from persona_pipeline.judging.options import AnthropicOptions
from persona_pipeline.settings import Settings, get_settings

_MAX_RETRIES = 1
_WIDTH = 200
# Seconds for which a message waits for the server's limits.
_PATIENCE = 1.0


def gate_backend(settings: Settings | None = None, options: AnthropicOptions | None = None) -> AnthropicBackend:
    """Return a backend for an ``ActionGate``.

    Args:
        options: instead of those of the settings.

    Raises:
        ConfigError: there is no key.
    """
    options = options or AnthropicOptions.from_settings(settings or get_settings())
    return AnthropicBackend(
        replace(
            options,
            deadline=min(options.deadline, DEADLINE_SECONDS),
            run_deadline=None,
            patience=min(options.patience, _PATIENCE),
            max_retries=min(options.max_retries, _MAX_RETRIES),
            # Messages wait behind one another otherwise.
            width=max(options.width, _WIDTH),
        )
    )
