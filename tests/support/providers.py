"""A judge of each provider against the local server."""

import pytest
from pydantic import SecretStr

from persona_pipeline.judging.providers.base import ModelOptions, find_provider
from tests.support.clock import LONG
from tests.support.messages_server import MessagesServer
from tests.support.protocols import ACCESS_KEY, BEARER, PROJECT, REGION, SECRET_KEY, SESSION_TOKEN

PROVIDERS = ("anthropic", "bedrock", "vertex", "openai")
MODELS = {
    "anthropic": "claude-haiku-5-5",
    "bedrock": "us.anthropic.claude-haiku-5-5-20260101-v1:0",
    "vertex": "claude-haiku-5-5@20260101",
    "openai": "gpt-5-mini",
}
SECRETS = (SECRET_KEY, SESSION_TOKEN, BEARER)


def set_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what the providers' SDKs take from the environment."""
    values = {
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_SESSION_TOKEN": SESSION_TOKEN,
        "AWS_EC2_METADATA_DISABLED": "true",
        "CLOUD_ML_REGION": REGION,
        "ANTHROPIC_VERTEX_PROJECT_ID": PROJECT,
    }
    for name in ("AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def options_of(provider: str, server: MessagesServer) -> ModelOptions:
    """Return options that ask a server, which speaks the provider's protocol."""
    return ModelOptions(
        provider=find_provider(provider),
        model=MODELS[provider],
        base_url=server.url,
        # Bedrock's requests are signed with what stands in the environment.
        api_key=None if provider == "bedrock" else SecretStr(BEARER),
        max_retries=0,
        deadline=LONG,
        patience=0.2,
    )
