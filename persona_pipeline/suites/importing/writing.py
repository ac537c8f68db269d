"""The files of an import: a suite and its targets, as YAML that reads back as the same data."""

import re
from pathlib import Path
from typing import Any

import yaml

from persona_pipeline.atomic_files import write_atomically
from persona_pipeline.errors import ConfigError
from persona_pipeline.suites.importing.config import Imported

_WIDTH = 120
# Text that only escapes keep as it is; text that YAML 1.2 reads as a number and PyYAML, which writes 1.1, leaves bare.
_ESCAPED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\t]")
_LIKE_A_NUMBER = re.compile(r"[-+.]?[0-9]")


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if _ESCAPED.search(text):
        style = '"'
    elif _LIKE_A_NUMBER.match(text):
        style = "'"
    elif "\n" in text and text.strip() == text:
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(data: Any) -> str:
    """Return data as YAML that is the same in versions 1.1 and 1.2."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)


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
