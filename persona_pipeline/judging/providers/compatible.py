"""Servers that speak chat completions, each in a way of its own: Azure OpenAI, Gemini, Ollama, vLLM and OpenRouter."""

import os
from typing import Any, ClassVar
from urllib.parse import urlsplit

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.judging.providers.openai import OpenAIProvider


class AzureProvider(OpenAIProvider):
    """Azure OpenAI: the model is a deployment's name. The v1 API, or a dated one where OPENAI_API_VERSION names its version."""

    name: ClassVar[str] = "azure"
    url_variable: ClassVar[str] = "AZURE_OPENAI_ENDPOINT"
    key_variable: ClassVar[str] = "AZURE_OPENAI_API_KEY"
    key_help: ClassVar[str] = "set AZURE_OPENAI_API_KEY"
    domain: ClassVar[str] = "azure.com"
    # It lists models and not their deployments.
    describes_models: ClassVar[bool] = False

    @property
    def default_url(self) -> str:
        raise ConfigError(
            f"the judge azure has no server; set {self.url_variable} to the resource's address, https://NAME.openai.azure.com"
        )

    def endpoint(self, base_url: str | None) -> str:
        url = super().endpoint(base_url)
        return url if _version_for(url) or urlsplit(url).path else f"{url}/openai/v1"

    def client(self, url: str, **how: Any) -> Any:
        from openai import AsyncAzureOpenAI

        version = _version_for(url)
        return (
            AsyncAzureOpenAI(azure_endpoint=url, api_version=version, **how) if version else super().client(url, **how)
        )

    def limit_of(self, url: str) -> str:
        return "max_completion_tokens"


def _version_for(url: str) -> str | None:
    """Return the version of the API that an address without a path is asked in; None: the v1 API, which has none."""
    return None if urlsplit(url).path else os.environ.get("OPENAI_API_VERSION")


class _Server(OpenAIProvider):
    """A server whose variables are called by its name, and whose models do not all take tools, or calls they have not made."""

    takes_tools: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.url_variable, cls.key_variable = f"{cls.name.upper()}_BASE_URL", f"{cls.name.upper()}_API_KEY"
        cls.key_help = f"set {cls.key_variable}"

    def endpoint(self, base_url: str | None) -> str:
        url = super().endpoint(base_url)
        return url if urlsplit(url).path else url + urlsplit(self.server).path


class GeminiProvider(_Server):
    """Gemini, by Google's own chat completions: of the Gemini API, or of Vertex AI with an access token as the key."""

    name: ClassVar[str] = "gemini"
    server: ClassVar[str] = "https://generativelanguage.googleapis.com/v1beta/openai"
    domain: ClassVar[str] = "googleapis.com"


class OllamaProvider(_Server):
    """Ollama on this machine, or wherever OLLAMA_BASE_URL says."""

    name: ClassVar[str] = "ollama"
    server: ClassVar[str] = "http://localhost:11434/v1"
    domain: ClassVar[str] = "ollama.com"


class VllmProvider(_Server):
    """vLLM on this machine, or wherever VLLM_BASE_URL says."""

    name: ClassVar[str] = "vllm"
    server: ClassVar[str] = "http://localhost:8000/v1"
    domain: ClassVar[str] = ""


class OpenRouterProvider(_Server):
    """OpenRouter, which asks others and says what that cost."""

    name: ClassVar[str] = "openrouter"
    server: ClassVar[str] = "https://openrouter.ai/api/v1"
    domain: ClassVar[str] = "openrouter.ai"
