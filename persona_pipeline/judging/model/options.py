"""How the live judge is called."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import SecretStr

from persona_pipeline.base.settings import DEFAULT_JUDGE_MODEL, Settings
from persona_pipeline.judging.model.pace import Limit
from persona_pipeline.judging.providers.anthropic import AnthropicProvider
from persona_pipeline.judging.providers.base import RECORDED, Provider, find_provider


@dataclass(frozen=True)
class ModelOptions:
    """How the live judge is called.

    Attributes:
        provider: who serves the model.
        deadline: wall-clock seconds one judgment may take in all, retries included.
        run_deadline: wall-clock seconds from the first call, after which nothing more is asked; None: none.
        max_tokens: for one answer and the thinking before it; doubled once when it does not suffice.
        width: calls under way at once, at most.
        max_retries: the SDK's own retries of a call; there are no others.
        base_url: default: what the environment says (``ANTHROPIC_BASE_URL`` and its like), else the provider's own server.
        api_key: default: what the SDK finds in the environment or on disk.
        cache_ttl: how long a shared prefix stays cached: ``5m`` or ``1h``.
        ambient_key: whether keys and headers of the environment are sent where none is given.
        breaker_threshold: identical failures in a row after which nothing more is asked for a while.
        per_minute: the most requests and tokens a minute; what is not said here is learnt from the server's answers.
        patience: seconds to keep asking a server whose limits let nothing through.
    """

    provider: Provider = field(default_factory=AnthropicProvider)
    model: str = DEFAULT_JUDGE_MODEL
    effort: str | None = "low"
    width: int = 20
    deadline: float = 60.0
    run_deadline: float | None = None
    max_tokens: int = 2048
    max_retries: int = 4
    base_url: str | None = None
    api_key: SecretStr | None = None
    cache_ttl: str = "5m"
    ambient_key: bool = True
    breaker_threshold: int = 10
    per_minute: Mapping[Limit, float] = field(default_factory=dict)
    patience: float = 600.0

    @classmethod
    def from_settings(cls, settings: Settings, judge: str | None = None) -> "ModelOptions":
        """Return the options that the settings say.

        Args:
            judge: the provider; None: that of the settings, or Anthropic where they name the recorded judge.

        Raises:
            ConfigError: nobody offers such a provider.
        """
        named = settings.judge if judge in (None, RECORDED) else judge
        provider = AnthropicProvider() if named == RECORDED else find_provider(named)
        is_set = "judge_model" in settings.model_fields_set
        return cls(
            provider=provider,
            model=settings.judge_model if is_set else provider.default_model or "",
            effort=settings.judge_effort or None,
            width=settings.judge_width,
            deadline=settings.judge_deadline,
            run_deadline=settings.run_deadline,
            max_tokens=settings.judge_max_tokens,
            per_minute={
                kind: most
                for kind, most in (
                    (Limit.REQUESTS, settings.judge_requests_per_minute),
                    (Limit.INPUT_TOKENS, settings.judge_input_tokens_per_minute),
                    (Limit.OUTPUT_TOKENS, settings.judge_output_tokens_per_minute),
                )
                if most is not None
            },
        )

    @property
    def name(self) -> str:
        """What stands in provenance, such as ``anthropic:claude-haiku-5-5``."""
        return f"{self.provider.name}:{self.model}"

    @property
    def endpoint(self) -> str:
        """The server's base URL, without credentials or a slash at its end.

        Raises:
            ConfigError: it depends on a setting that is not there.
        """
        return self.provider.endpoint(self.base_url)

    @property
    def is_anthropic(self) -> bool:
        """Whether the server is Anthropic's own."""
        return isinstance(self.provider, AnthropicProvider) and self.provider.is_anthropic(self.endpoint)

    def has_credentials(self) -> bool:
        """Whether a key was given or is set in the environment; servers of one's own need none."""
        return self.provider.has_credentials(self)

    def require_usable(self) -> None:
        """Raise ``ConfigError`` with the remedy when a key, a package or a setting is missing."""
        self.provider.require_usable(self)
