"""Proposition files: an agent's is merged onto the default's."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.documents.yaml import Document, load_document, validate_document
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.base.files import read_regular
from persona_pipeline.world.personas import DRAFT, check_agent_id, find_yaml
from persona_pipeline.world.propositions.models import (
    ALL_DIMENSIONS,
    DIMENSIONS,
    Catchphrase,
    Proposition,
    PropositionFile,
    PropositionSet,
)

DEFAULT = "_default"
PROPOSITIONS = "propositions"
_SETTINGS = ("include_personas", "hard", "target_type", "level", "first_n", "last_n")


@dataclass(frozen=True)
class LoadedFile:
    """A proposition file: its content and the place of each piece."""

    document: Document
    content: PropositionFile


def load_proposition_set(root: Path | str, dimension: str, agent_id: str | None = None) -> PropositionSet:
    """Load the propositions of a dimension for an agent: ``_default.yaml``, then ``<agent_id>.yaml`` merged onto it.

    ``root``: the propositions folder. ``agent_id``: None loads the default file alone. Returns the merged set, claims not yet
    filled in; ``agent_id`` is set only if the agent has a file. Raises ``ConfigError``: a file is not valid (every problem of
    both files), or neither file exists.
    """
    merged = find_proposition_set(root, dimension, agent_id)
    if merged is None:
        folder = Path(root) / dimension
        names = " or ".join(f"{name}.yaml" for name in (DEFAULT, agent_id) if name)
        raise ConfigError(f"no propositions for dimension {dimension!r}; write {folder}/{names}")
    return merged


def find_proposition_set(root: Path | str, dimension: str, agent_id: str | None = None) -> PropositionSet | None:
    """Like ``load_proposition_set``, but None when neither file exists."""
    if dimension not in ALL_DIMENSIONS:
        hint = did_you_mean(dimension, ALL_DIMENSIONS) or f"; the dimensions are {', '.join(ALL_DIMENSIONS)}"
        raise ConfigError(f"unknown dimension {dimension!r}{hint}")
    folder = Path(root) / dimension
    documents: list[Document] = []
    files: dict[str, LoadedFile] = {}
    problems: list[Problem] = []
    for stem in filter(None, (DEFAULT, agent_id and check_agent_id(agent_id))):
        try:
            path = find_yaml(folder, stem)
            if path is not None:
                documents.append(load_document(path))
                files[stem] = _checked(documents[-1])
        except ConfigError as error:
            problems += error.problems
    problems += _duplicates(documents)
    if problems:
        raise ConfigError(problems)
    if not files:
        return None
    return _merge(dimension, files.get(DEFAULT), files.get(agent_id or ""), agent_id)


def load_proposition_file(path: Path) -> LoadedFile:
    """Read one file on its own; ConfigError: every problem in it, each with its place."""
    document = load_document(path)
    return _checked(document, _duplicates([document]))


def _checked(document: Document, more: Sequence[Problem] = ()) -> LoadedFile:
    """Return the file of a document; ``more``: what else is wrong with it."""
    problems = [*_misplaced(document), *more]
    try:
        content = validate_document(PropositionFile, document)
    except ConfigError as error:
        raise ConfigError([*error.problems, *problems]) from error
    if problems:
        raise ConfigError(problems)
    return LoadedFile(document, content)


def _misplaced(document: Document) -> list[Problem]:
    """Return problems of misplaced content. It uses plain data, so other errors do not hide these."""
    data = document.data if isinstance(document.data, dict) else {}
    path, dimension, agent_id = Path(document.path).absolute(), data.get("dimension"), data.get("agent_id")
    problems = []
    stem = path.stem.removesuffix(DRAFT)
    if isinstance(agent_id, str) and agent_id != stem:
        problems.append(
            document.problem(("agent_id",), f"agent_id {agent_id!r} is unlike the file's name; write {stem!r}")
        )
    if dimension not in ALL_DIMENSIONS:
        return problems
    folder = path.parent.name
    if dimension != folder:
        problems.append(
            document.problem(
                ("dimension",), f"dimension {dimension!r} is unlike its folder {folder!r}; move the file or correct it"
            )
        )
    if data.get("level") == "action" and not DIMENSIONS[dimension].by_action:
        problems.append(document.problem(("level",), "level: action is for adherence; remove it"))
    if data.get("catchphrases") and not DIMENSIONS[dimension].has_catchphrases:
        problems.append(document.problem(("catchphrases",), "catchphrases are for fluency; move them there", key=True))
    return problems


def _merge(dimension: str, default: LoadedFile | None, own: LoadedFile | None, agent_id: str | None) -> PropositionSet:
    files = [file for file in (default, own) if file]
    entries = [entry for file in files for entry in file.content.propositions if not entry.draft]
    if entries and not any(entry.weight for entry in entries):
        raise ConfigError(
            files[-1].document.problem(("propositions",), "all weights are 0; give at least one claim a weight")
        )
    settings: dict[str, Any] = {}
    catchphrases: list[Any] = []
    for file in files:
        present = file.content.model_fields_set
        settings |= {name: getattr(file.content, name) for name in _SETTINGS if name in present}
        if "catchphrases" in present:
            catchphrases = file.content.catchphrases
    return PropositionSet(
        dimension=dimension,
        agent_id=agent_id if own else None,
        propositions=tuple(Proposition(**entry.model_dump(exclude={"draft"})) for entry in entries),
        catchphrases=tuple(Catchphrase(**entry.model_dump()) for entry in catchphrases),
        **settings,
    )


def _duplicates(documents: Sequence[Document]) -> list[Problem]:
    """Return problems of duplicate ids, in one file or both; missing ids are not checked here."""
    seen: dict[str, str] = {}
    problems = []
    for document in documents:
        entries = document.data.get("propositions") if isinstance(document.data, dict) else None
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            key = entry.get("id") if isinstance(entry, dict) else None
            if not isinstance(key, str) or not key.strip():
                continue
            location = ("propositions", index, "id")
            if key in seen:
                problems.append(
                    document.problem(location, f"proposition id {key!r} is taken by {seen[key]}; rename one")
                )
            seen.setdefault(key, f"{document.path}:{document.where(location)[0]}")
    return problems


def proposition_files_hash(root: Path, dimension: str, agent_id: str) -> str:
    """Return a hash of the bytes of the files behind a set, valid or not: what a change is noticed by."""
    contents = []
    for stem in (DEFAULT, check_agent_id(agent_id)):
        for ending in (".yaml", ".yml"):
            path = root / PROPOSITIONS / dimension / f"{stem}{ending}"
            if path.is_file():
                contents.append([path.name, read_regular(path).decode("utf-8", "backslashreplace")])
    return content_hash(contents)


@dataclass(frozen=True)
class StoredSet:
    """A merged set: the hash of its content, and the set (None: the agent has none)."""

    version: str
    propositions: PropositionSet | None

    @classmethod
    def of(cls, propositions: PropositionSet | None) -> "StoredSet":
        """Return a set with its hash."""
        return cls(content_hash(propositions.to_dict() if propositions else None), propositions)

    @classmethod
    def read(cls, folder: Path, dimension: str, agent_id: str) -> "StoredSet":
        """Return an agent's set of a dimension as its files have it; one without claims is none."""
        found = find_proposition_set(folder, dimension, agent_id)
        return cls.of(found if found is not None and found.propositions else None)


def own_claims(folder: Path, dimension: str, agent_id: str) -> frozenset[str]:
    """Return the ids of the claims in an agent's own file of a dimension."""
    path = find_yaml(folder / dimension, agent_id)
    return (
        frozenset(entry["id"] for entry in load_document(path).data.get("propositions") or ()) if path else frozenset()
    )


def read_claims(
    folder: Path, agent_ids: Iterable[str], dimensions: Sequence[str], *, named: Collection[str] = ()
) -> tuple[dict[str, dict[str, StoredSet]], dict[str, dict[str, tuple[Problem, ...]]]]:
    """Return agents' claims by dimension, and problems of invalid files by agent and dimension.

    ``folder``: of propositions. ``named``: dimensions without which an agent has a problem.
    """
    claims: dict[str, dict[str, StoredSet]] = {}
    broken: dict[str, dict[str, tuple[Problem, ...]]] = {}
    for agent_id in agent_ids:
        own = claims.setdefault(agent_id, {})
        for dimension in dimensions:
            try:
                own[dimension] = StoredSet.read(folder, dimension, agent_id)
            except ConfigError as error:
                broken.setdefault(agent_id, {})[dimension] = error.problems
                continue
            if dimension in named and own[dimension].propositions is None:
                place = f"{PROPOSITIONS}/{dimension}"
                said = (
                    f"{agent_id} has no {dimension} propositions; write {place}/_default.yaml or "
                    f"{place}/{agent_id}.yaml, or leave the dimension out"
                )
                broken.setdefault(agent_id, {})[dimension] = (Problem(said),)
    return claims, broken
