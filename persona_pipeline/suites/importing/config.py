"""Import of an eval file: the suite and its targets."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import write_atomically
from persona_pipeline.base.documents.yaml import to_yaml
from persona_pipeline.base.errors import ConfigError, NothingError, Problem
from persona_pipeline.suites.format.files import Files, default_roots
from persona_pipeline.suites.format.models import MOST_DESCRIPTION, apart
from persona_pipeline.suites.format.problems import Reader
from persona_pipeline.suites.format.suite import SuiteFields
from persona_pipeline.suites.importing.cases import read_tests
from persona_pipeline.suites.importing.findings import (
    AGENTV,
    PROMPTFOO,
    PYDANTIC_EVALS,
    TABLES,
    FilePart,
    Findings,
    listed,
    whole,
)
from persona_pipeline.suites.importing.prompts import read_prompts
from persona_pipeline.suites.importing.providers import PROVIDER, Providers, read_execution, read_workspace

ORIGINS = (PROMPTFOO, AGENTV, PYDANTIC_EVALS)
_PROVIDERS = ("providers", "targets", "target")


@dataclass(frozen=True)
class ImportedSuite:
    """An imported suite and its targets as plain data, with the findings."""

    suite: dict[str, Any]
    targets: dict[str, Any] | None
    findings: tuple[Problem, ...]
    origin: str


def import_file(path: Path, out: Path, origin: str | None = None) -> ImportedSuite:
    """Convert an eval file of another tool to a suite and targets.

    ``out``: their folder, from which their paths start. ``origin``: ``promptfoo``, ``agentv`` or ``pydantic-evals``; None: it
    is detected. Raises ``ConfigError``: the file cannot be read, or no test can be converted.
    """
    path = path.absolute().parent.resolve() / path.name
    if origin is not None and origin not in ORIGINS:
        raise ConfigError(f"--from {origin!r} is unknown; use {', '.join(ORIGINS)}")
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        said = "is no eval file that can be read: its name must end in .yaml, .yml or .json"
        raise ConfigError(Problem(said, str(path)))
    # Only files in the eval file's repository are read.
    reader = Reader(Files(default_roots(path)), path.parent)
    entry = whole(reader.files.text_of(path), path)
    if not isinstance(entry.data, dict):
        raise ConfigError(entry.problem("must be a mapping with tests"))
    # The folder must exist so that paths through it resolve.
    out.mkdir(parents=True, exist_ok=True)
    findings = Findings(reader, out.resolve(), origin or _origin(entry.data, path))
    imported = _imported(findings.part(entry))
    if reader.problems:
        raise ConfigError(list(dict.fromkeys(reader.problems)))
    if not imported.suite["tests"]:
        kind = ConfigError if imported.findings else NothingError
        raise kind([*imported.findings, Problem("holds no test that can be taken over", str(path))])
    return imported


def _origin(data: Mapping[str, Any], path: Path) -> str:
    if path.name.startswith("promptfoo") or "defaultTest" in data or "evaluateOptions" in data:
        return PROMPTFOO
    if "cases" in data and "tests" not in data:
        return PYDANTIC_EVALS
    tests = [test for test in listed(data.get("tests")) if isinstance(test, dict)]
    if any(key in data for key in TABLES["keys_of_agentv"]) or any("id" in test for test in tests):
        return AGENTV
    return PROMPTFOO if "providers" in data or "prompts" in data else AGENTV


def _imported(part: FilePart) -> ImportedSuite:
    findings, providers = part.findings, Providers()
    for key in ("$schema", "assertionTemplates"):
        part.take(key)
    prompts = read_prompts(part)
    providers.found = providers.read(part.each(*_PROVIDERS, label=PROVIDER))
    if (execution := part.inner("execution", "execution.{}")) is not None:
        asked = execution.each("targets", "target", label=PROVIDER)
        providers.asked = [one for place in asked for one in providers.of(place)]
    suite = _metadata(part)
    key = part.first("evaluateOptions", "evaluate_options")
    options = part.inner(key, f"{key}.{{}}") if key else None
    run = read_execution(part, options)
    names = [one.name for one in providers.default if one.target is not None or not findings.promptfoo]
    if names:
        run = {"targets": names} | run if len(names) > 1 else {"target": names[0]} | run
    suite |= ({"execution": run} if run else {}) | read_workspace(part)
    taken: set[str] = set()
    suite["tests"] = [test | {"id": apart(test["id"], taken)} for test in read_tests(part, prompts, providers)]
    targets, workers = providers.targets, options and options.number("maxConcurrency", "max_concurrency")
    if isinstance(workers, int) and 1 <= workers <= 256:
        targets = [{**target, "workers": workers} for target in targets]
    findings.unread()
    found = sorted(
        dict.fromkeys(findings.reader.warnings), key=lambda one: (str(one.path), one.line or 0, one.column or 0)
    )
    return ImportedSuite(suite, {"targets": targets} if targets else None, tuple(found), findings.origin)


def _metadata(part: FilePart) -> dict[str, Any]:
    """Return the metadata of a file, as far as a suite allows it."""
    found: dict[str, Any] = {
        name: value for name in ("description", "version", "author", "license") if (value := part.text(name))
    }
    name = re.sub(r"[^a-z0-9-]+", "-", (part.text("name") or "").lower()).strip("-")[:64]
    if name and 1 <= len(found.get("description", "")) <= MOST_DESCRIPTION:
        found = {"name": name, **found}
    elif name:
        remedy = f"a suite with a name has a description, of at most {MOST_DESCRIPTION} characters"
        part.none("name", "name", remedy=remedy)
    found |= {"requires": requires} if (requires := part.mapping("requires")) else {}
    tags = part.take("tags")
    if isinstance(tags, dict):
        found["tags"] = [f"{name}:{value}" for name, value in tags.items()]
    elif tags is not None:
        found["tags"] = [str(tag) for tag in listed(tags)]
    if not part.valid(found, lambda reader, entry: reader.validated(SuiteFields, found, entry.named("suite"))):
        found = {}
    return found


def write_import(imported: ImportedSuite, source: Path, out: Path, *, force: bool = False) -> list[Path]:
    """Write ``<name>.eval.yaml``, and ``targets.yaml`` if there are targets, to a folder; return the files.

    Raises ``ConfigError``: a file exists and ``force`` is not set.
    """
    head = f"# Imported from {source.name} ({imported.origin}).\n"
    stem = re.sub(r"(\.eval)?\.(ya?ml|json)$", "", source.name, flags=re.IGNORECASE)
    stem = re.sub(r"[^\w.-]+", "-", stem) or "suite"
    texts = {out / f"{stem}.eval.yaml": head + to_yaml(imported.suite)}
    if imported.targets is not None:
        texts[out / "targets.yaml"] = head + to_yaml(imported.targets)
    there = [path for path in texts if path.exists()]
    if there and not force:
        raise ConfigError(
            f"{', '.join(map(str, there))} is there already; pass --force to replace it, or --output elsewhere"
        )
    for path, text in texts.items():
        write_atomically(path, text)
    return list(texts)
