"""The live judge as the gate needs it: quick, without a cache, given up before the gate's own deadline."""

from dataclasses import replace

from persona_pipeline.corrections.gate import DEADLINE_SECONDS
from persona_pipeline.judging.model.options import ModelOptions
from persona_pipeline.judging.open import JudgeOptions, open_judge
from persona_pipeline.judging.verdict import Backend
from persona_pipeline.settings import Settings, get_settings

_MAX_RETRIES = 1
_WIDTH = 200
# Seconds for which a message waits for the server's limits.
_PATIENCE = 1.0


def gate_backend(settings: Settings | None = None, options: ModelOptions | None = None) -> Backend:
    """Return a backend for an ``ActionGate``.

    Args:
        options: instead of those of the settings.

    Raises:
        ConfigError: there is no key.
    """
    calling = options or ModelOptions.from_settings(settings or get_settings())
    quick = replace(
        calling,
        deadline=min(calling.deadline, DEADLINE_SECONDS),
        run_deadline=None,
        patience=min(calling.patience, _PATIENCE),
        max_retries=min(calling.max_retries, _MAX_RETRIES),
        # Messages wait behind one another otherwise.
        width=max(calling.width, _WIDTH),
    )
    # One question at a time and no claims: the model itself, whose connections stay open.
    return open_judge(quick.provider.name, None, JudgeOptions(recorded=False, kept=False), calling=quick).backend
