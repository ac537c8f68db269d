"""The files of an import: a suite and its targets, as YAML that reads back as the same data."""

import re
from pathlib import Path

from persona_pipeline.atomic_files import write_atomically
from persona_pipeline.documents.yaml_text import to_yaml
from persona_pipeline.errors import ConfigError
from persona_pipeline.suites.importing.config import Imported


def write_import(imported: Imported, source: Path, out: Path, *, force: bool = False) -> list[Path]:
    """Write an import to a folder and return the files: ``<name>.eval.yaml``, and ``targets.yaml`` where there are targets.

    Raises:
        ConfigError: a file is there already and ``force`` is not set.
    """
    head = f"# Imported from {source.name} ({imported.origin}).\n"
    texts = {out / f"{_stem(source)}.eval.yaml": head + to_yaml(imported.suite)}
    if imported.targets is not None:
        texts[out / "targets.yaml"] = head + to_yaml(imported.targets)
    there = [path for path in texts if path.exists()]
    if there and not force:
        raise ConfigError(
            f"{', '.join(map(str, there))} is there already; pass --force to replace it, or --out elsewhere"
        )
    for path, text in texts.items():
        write_atomically(path, text)
    return list(texts)


def _stem(source: Path) -> str:
    stem = re.sub(r"(\.eval)?\.(ya?ml|json)$", "", source.name, flags=re.IGNORECASE)
    return re.sub(r"[^\w.-]+", "-", stem) or "suite"
