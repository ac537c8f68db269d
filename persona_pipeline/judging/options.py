"""How the live judge is called."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pydantic import SecretStr

from persona_pipeline.errors import ConfigError
from persona_pipeline.judging.pacing import Limit
from persona_pipeline.settings import DEFAULT_JUDGE_MODEL, Settings

ANTHROPIC_URL = "https://api.anthropic.com"
CREDENTIALS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_PROFILE",
    "ANTHROPIC_IDENTITY_TOKEN",
    "ANTHROPIC_IDENTITY_TOKEN_FILE",
)


@dataclass(frozen=True)
class AnthropicOptions:
    """How the live judge is called.

    Attributes:
        deadline: wall-clock seconds one judgment may take in all, retries included.
        run_deadline: wall-clock seconds from the first call, after which nothing more is asked; None: none.
        max_tokens: for one answer and the thinking before it; doubled once when it does not suffice.
        width: calls under way at once, at most.
        max_retries: the SDK's own retries of a call; there are no others.
        base_url: default ``ANTHROPIC_BASE_URL``, else Anthropic.
        api_key: default: what the SDK finds in the environment or on disk.
        cache_ttl: how long a shared prefix stays cached: ``5m`` or ``1h``.
        ambient_key: whether keys and headers of the environment are sent where none is given.
        breaker_threshold: identical failures in a row after which nothing more is asked for a while.
        per_minute: the most requests and tokens a minute; what is not said here is learnt from the server's answers.
        patience: seconds to keep asking a server whose limits let nothing through.
    """

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
    def from_settings(cls, settings: Settings) -> "AnthropicOptions":
        return cls(
            model=settings.judge_model,
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
    def endpoint(self) -> str:
        """The server's base URL, without credentials or a slash at its end."""
        url = urlsplit(self.base_url or os.environ.get("ANTHROPIC_BASE_URL") or ANTHROPIC_URL)
        return url._replace(netloc=url.netloc.rpartition("@")[2]).geturl().rstrip("/")

    @property
    def is_anthropic(self) -> bool:
        host = urlsplit(self.endpoint).hostname or ""
        return host == "anthropic.com" or host.endswith(".anthropic.com")

    def has_credentials(self) -> bool:
        """Whether a key was given or is set in the environment; servers other than Anthropic's need none."""
        return bool(self.api_key) or not self.is_anthropic or any(map(os.environ.get, CREDENTIALS))

    def require_credentials(self) -> None:
        """Raise ``ConfigError`` with the remedy when there is no key."""
        if not self.has_credentials():
            raise ConfigError(
                "the live judge has no key; set ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL to a server of your own,"
                " or replay recorded judgments with --judge recorded"
            )
