"""Events, partitions and versions of assets, and the folder of reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import dagster as dg

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import Settings
from persona_pipeline.defs.platform.dagster_internals import lineage_tags


@dataclass(frozen=True)
class AssetOutcome:
    """A data version, which changes exactly when the content does, and metadata."""

    version: str
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Half of a digest is enough, and every downstream event repeats it.
        object.__setattr__(self, "version", self.version[:32])

    def result(
        self, spec: dg.AssetSpec | None = None, checks: Sequence[dg.AssetCheckResult] = ()
    ) -> dg.MaterializeResult:
        """Return the outcome as an asset's result; ``spec``: the asset, for a step with several."""
        version = dg.DataVersion(self.version)
        return dg.MaterializeResult(
            asset_key=spec and spec.key, data_version=version, metadata=self.metadata, check_results=checks
        )


def evaluated(key: dg.AssetKey, partition: str, said: dg.AssetCheckResult) -> dg.AssetCheckEvaluation:
    """Return the event of a check of a partition. It must not block, because that would end the step of the others."""
    about = {**said._asdict(), "asset_key": key, "check_name": said.check_name or ""}
    return dg.AssetCheckEvaluation(**about, partition=partition, blocking=False)


def reported(spec: dg.AssetSpec, partition: str, version: str) -> dg.AssetMaterialization:
    """Return the event that says which version a source has, without a run."""
    return dg.AssetMaterialization(spec.key, partition=partition, tags=lineage_tags(version, None, {}))


PartitionRequest = dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest


def partition_requests(
    partitions: dg.DynamicPartitionsDefinition, there: Sequence[str], known: Sequence[str]
) -> list[PartitionRequest]:
    """Return the requests that add new partitions and delete old ones."""
    new, old = set(there), set(known)
    added, gone = [name for name in there if name not in old], [name for name in known if name not in new]
    return [
        *([partitions.build_add_request(added)] if added else []),
        *([partitions.build_delete_request(gone)] if gone else []),
    ]


STATE = ".persona"
_OBJECT_STORES = ("s3", "gs", "az")


def reports_folder(root: Path, settings: Settings) -> Path:
    """Return where the reports of the world at ``root`` belong: PERSONA_REPORTS, else ``reports`` in the folder of the state."""
    if settings.reports:
        return open_folder(settings.reports, "PERSONA_REPORTS")
    return (settings.state or root / STATE) / "reports"


def open_folder(place: str, variable: str) -> Path:
    """Return a folder by its path or the URL of an object store, which is read and written alike.

    Raises ``ConfigError``: nothing is installed that knows the URL's store; it names the ``variable`` that has it.
    """
    if "://" not in place:
        return Path(place)
    from upath import UPath

    protocol = place.partition("://")[0]
    try:
        if protocol in _OBJECT_STORES:
            from obstore.fsspec import register  # pyright: ignore[reportMissingImports]

            register(protocol)
        folder = UPath(place)
        # What the store needs is imported only now.
        assert folder.fs
    except (ImportError, ValueError) as error:
        remedy = "write s3://, gs:// or az:// and pip install 'persona-pipeline[objects]'"
        raise ConfigError(f"{variable} is {place!r}: {error}; {remedy}") from error
    return cast(Path, folder)


def write_texts(folder: Path, texts: Mapping[str, str]) -> Path:
    """Write files, text by name, and return their folder; it is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder
