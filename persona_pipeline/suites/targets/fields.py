"""What every entry of a targets file has, whoever answers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, Field, PrivateAttr

from persona_pipeline.errors import ConfigError
from persona_pipeline.suites.format.field_types import StrictFields, Text
from persona_pipeline.suites.targets.base import Request, TargetError
from persona_pipeline.suites.targets.grants import OWN, Grants
from persona_pipeline.suites.targets.output import Output


class TargetFields(StrictFields):
    """One target as it is written; subclasses are the providers.

    ``runs_code``: answering runs programs of the suite's author, so it needs leave. ``asks_network``: answering asks a server,
    so it needs leave where the suite names it.
    """

    model_config = ConfigDict(populate_by_name=True)

    runs_code: ClassVar[bool] = False
    asks_network: ClassVar[bool] = False

    name: Text = Field(description="What suites call it.")
    provider: Text = Field(description="Which kind of target this is.")
    workers: int | None = Field(None, ge=1, le=256, description="How many tests it answers at once.")
    judge_target: Text | None = Field(None, description="Accepted; judgments come from the project's judge.")

    # The folder of the targets file: relative paths start there.
    _folder: Path = PrivateAttr(Path())
    _grants: Grants = PrivateAttr(OWN)

    @property
    def folder(self) -> Path:
        return self._folder

    def respond(self, request: Request) -> Output:
        """Return the answer.

        Raises:
            TargetError: there is none.
        """
        raise NotImplementedError

    def require_network(self) -> None:
        """Raises ``TargetError`` where the suite names the target and nobody gave it leave to ask a server."""
        if not self._grants.reaches:
            raise TargetError(
                "target_not_allowed",
                f"target {self.name!r} asks a server; pass --allow-targets if you trust it, or give a targets file of your own",
            )

    def allowed(self, name: str) -> Path:
        """Return the file or folder that a target names.

        Raises:
            ConfigError: it lies outside, and nobody allowed its folder.
        """
        path = self.folder / name
        if not self._grants.allows(path):
            raise ConfigError(
                f"target {self.name!r}: {name!r} lies outside the repository; move it, or allow its folder with --allow-path"
            )
        return path

    def close(self) -> None:
        """Let go of connections; one that answers again connects again."""

    def fingerprint(self) -> Mapping[str, Any]:
        """Return all that can change its answers, as JSON without secrets: the cache's key is made of it."""
        raise NotImplementedError
