"""Claude at Anthropic or at any server that speaks the Messages API, on Bedrock and on Vertex, through the anthropic SDK."""

import json
import logging
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import DEFAULT_JUDGE_MODEL
from persona_pipeline.judging.providers.base import Hooks, ModelOptions, Provider

if TYPE_CHECKING:
    from anthropic import Anthropic

CREDENTIALS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_PROFILE",
    "ANTHROPIC_IDENTITY_TOKEN",
    "ANTHROPIC_IDENTITY_TOKEN_FILE",
)


@lru_cache
def _api_version() -> str:
    """Return the API version that the installed SDK sends, read from its source: importing the SDK takes a second."""
    package = find_spec("anthropic")
    source = Path(package.origin or "").with_name("_constants.py").read_text("utf-8") if package else ""
    if found := re.search(r'^ANTHROPIC_API_VERSION = "(.+)"', source, re.MULTILINE):
        return found[1]
    from anthropic._constants import ANTHROPIC_API_VERSION

    return ANTHROPIC_API_VERSION


class _OverAnthropicSdk(Provider):
    @property
    def api_version(self) -> str:
        return _api_version()

    def sdk(self) -> ModuleType:
        import anthropic

        return anthropic

    async def create(self, client: Any, body: Mapping[str, Any]) -> bytes:
        from httpx2 import Response

        # Not through ``messages.create``, which goes through the types of every part of the body.
        return (await client.post("/v1/messages", body=dict(body), cast_to=Response)).content

    async def converse(self, client: Any, body: Mapping[str, Any]) -> bytes:
        response = await client.messages.with_raw_response.create(**body)
        return await response.read()

    def own_key(self, options: ModelOptions) -> str | None:
        """Return the key that was given; None: the SDK finds one in the environment.

        ``ConfigError``: it cannot be used, or the server is named without a key and the environment's key must not go there.
        """
        self.require_usable(options)
        if not options.ambient_key and options.api_key is None:
            raise ConfigError(f"{self.name} asks a server named by base_url; give its api_key beside that")
        return options.key


class AnthropicProvider(_OverAnthropicSdk):
    """The Messages API itself."""

    name: ClassVar[str] = "anthropic"
    default_model: ClassVar[str | None] = DEFAULT_JUDGE_MODEL
    url_variable: ClassVar[str] = "ANTHROPIC_BASE_URL"
    key_help: ClassVar[str] = "set ANTHROPIC_API_KEY"
    has_batches: ClassVar[bool] = True
    counts_tokens: ClassVar[bool] = True
    describes_models: ClassVar[bool] = True

    @property
    def default_url(self) -> str:
        return "https://api.anthropic.com"

    async def create(self, client: Any, body: Mapping[str, Any]) -> bytes:
        from httpx2 import Response

        # As bytes, because the SDK copies a body value by value. Clouds need the values: the model goes into their path.
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8")
        return (await client.post("/v1/messages", content=content, cast_to=Response)).content

    def is_anthropic(self, endpoint: str) -> bool:
        host = urlsplit(endpoint).hostname or ""
        return host == "anthropic.com" or host.endswith(".anthropic.com")

    def has_credentials(self, options: ModelOptions) -> bool:
        return bool(options.api_key) or not options.is_anthropic or any(map(os.environ.get, CREDENTIALS))

    def connect(self, options: ModelOptions, hooks: Hooks) -> Any:
        from anthropic import AsyncAnthropic

        client = AsyncAnthropic(**self.arguments(options), **self.how_to_call(options, hooks))
        if not options.ambient_key:
            # What ANTHROPIC_CUSTOM_HEADERS holds may be a key too.
            client._custom_headers = {}
        return client

    def connect_sync(self, options: ModelOptions) -> "Anthropic":
        from anthropic import Anthropic

        return Anthropic(**self.arguments(options), **self.how_to_call(options))

    def arguments(self, options: ModelOptions) -> dict[str, Any]:
        """Return the arguments of a client; ``ConfigError``: the key is missing."""
        if options.ambient_key:
            options.require_usable()
        key, has_ambient = options.key, options.is_anthropic or any(map(os.environ.get, CREDENTIALS))
        if key is None and not (options.ambient_key and has_ambient):
            key = "none"
        return {"api_key": key, "base_url": options.base_url}


class BedrockProvider(_OverAnthropicSdk):
    """Claude on Amazon Bedrock: keys, region and profile are those of the AWS SDK, or AWS_BEARER_TOKEN_BEDROCK."""

    name: ClassVar[str] = "bedrock"
    extra: ClassVar[str] = "bedrock"
    modules: ClassVar[tuple[str, ...]] = ("boto3", "botocore")
    url_variable: ClassVar[str] = "ANTHROPIC_BEDROCK_BASE_URL"
    key_help: ClassVar[str] = "give AWS credentials as for any AWS program, or set AWS_BEARER_TOKEN_BEDROCK"

    @property
    def default_url(self) -> str:
        return f"https://bedrock-runtime.{self._region()}.amazonaws.com"

    def require_usable(self, options: ModelOptions) -> None:
        super().require_usable(options)
        self._region()

    def connect(self, options: ModelOptions, hooks: Hooks) -> Any:
        from anthropic.lib.bedrock import AsyncAnthropicBedrock

        key = self.own_key(options)
        # At DEBUG it writes down the session's token.
        logging.getLogger("botocore.auth").setLevel(logging.INFO)
        return AsyncAnthropicBedrock(
            api_key=key, aws_region=self._region(), base_url=options.endpoint, **self.how_to_call(options, hooks)
        )

    def _region(self) -> str:
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        region = region or _region_of_profile(os.environ.get("AWS_PROFILE"))
        if not region:
            raise ConfigError("bedrock has no region; set AWS_REGION, or one in your AWS profile")
        return region


class VertexProvider(_OverAnthropicSdk):
    """Claude on Google's Vertex AI: credentials are Google's default ones."""

    name: ClassVar[str] = "vertex"
    extra: ClassVar[str] = "vertex"
    modules: ClassVar[tuple[str, ...]] = ("google.auth", "requests")
    url_variable: ClassVar[str] = "ANTHROPIC_VERTEX_BASE_URL"
    key_help: ClassVar[str] = "log in with gcloud auth application-default login"
    counts_tokens: ClassVar[bool] = True

    @property
    def default_url(self) -> str:
        region = self._setting("CLOUD_ML_REGION", "region")
        if region == "global":
            return "https://aiplatform.googleapis.com/v1"
        if region in ("us", "eu"):
            return f"https://aiplatform.{region}.rep.googleapis.com/v1"
        return f"https://{region}-aiplatform.googleapis.com/v1"

    def require_usable(self, options: ModelOptions) -> None:
        super().require_usable(options)
        self._setting("CLOUD_ML_REGION", "region")
        self._setting("ANTHROPIC_VERTEX_PROJECT_ID", "project")

    def connect(self, options: ModelOptions, hooks: Hooks) -> Any:
        from anthropic.lib.vertex import AsyncAnthropicVertex

        return AsyncAnthropicVertex(
            access_token=self.own_key(options),
            region=self._setting("CLOUD_ML_REGION", "region"),
            project_id=self._setting("ANTHROPIC_VERTEX_PROJECT_ID", "project"),
            base_url=options.endpoint,
            **self.how_to_call(options, hooks),
        )

    def _setting(self, variable: str, what: str) -> str:
        value = os.environ.get(variable)
        if not value:
            raise ConfigError(f"vertex has no {what}; set {variable}")
        return value


@lru_cache
def _region_of_profile(profile: str | None) -> str | None:
    import boto3

    return boto3.Session(profile_name=profile).region_name
