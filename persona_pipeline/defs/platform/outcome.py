"""What an asset yields, whether a run is about one agent or about a thousand."""

from dataclasses import dataclass, field
from typing import Any

import dagster as dg


@dataclass(frozen=True)
class Outcome:
    """A data version, which changes exactly when the content does, and metadata."""

    version: str
    metadata: dict[str, Any] = field(default_factory=dict)

    def result(self, spec: dg.AssetSpec | None = None) -> dg.MaterializeResult:
        """Return it as what an asset returns; ``spec``: which of a step's assets it is about."""
        return dg.MaterializeResult(
            asset_key=spec.key if spec else None, data_version=dg.DataVersion(self.version), metadata=self.metadata
        )
