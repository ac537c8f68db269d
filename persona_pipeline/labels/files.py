"""Labels on disk: ``labels/<dimension>.jsonl`` in the world, to be read in a diff."""

from collections.abc import Collection, Iterable
from pathlib import Path

from persona_pipeline.documents.json_lines import read_rows, write_if_changed
from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.labels.label import Label, parse_label

LABELS = "labels"


def load_labels(folder: Path) -> list[Label]:
    """Return the labels of a folder, file by file in their order. A missing folder has none.

    A line that stands twice, as a merge may leave it, is one label.

    Raises:
        ConfigError: lines that are no label, judgments that one labeller answered in two ways, and labellers that are once a person
            and once a model, each with its place.
    """
    return _load(_files(folder))


def load_label_file(path: Path) -> list[Label]:
    """Return the labels of one file.

    Raises:
        ConfigError: as ``load_labels``.
    """
    return _load([path])


def write_labels(folder: Path, labels: Iterable[Label], *, remove: Collection[tuple[str, str]] = ()) -> list[Path]:
    """Add labels, replacing those of the same labeller on the same judgment, and return the files that changed.

    Files are sorted and replaced atomically; writers wait for one another, so that several may label at once.

    Args:
        remove: identities (``Label.identity``) of labels to take away.

    Raises:
        ConfigError: the labels that are there do not load, or a labeller would be once a person and once a model.
    """
    from filelock import FileLock

    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        before = load_labels(folder)
        merged = {label.identity: label for label in before if label.identity not in remove}
        merged |= {label.identity: label for label in labels}
        if problems := _two_kinds((folder, None, label) for label in merged.values()):
            raise ConfigError(problems)
        by_dimension: dict[str, list[Label]] = {label.dimension: [] for label in before}
        for label in sorted(merged.values(), key=_order):
            by_dimension.setdefault(label.dimension, []).append(label)
        texts = {
            folder / f"{dimension}.jsonl": "".join(label.to_line() for label in own)
            for dimension, own in sorted(by_dimension.items())
        }
        return [path for path, text in texts.items() if _replace(path, text)]


def _replace(path: Path, text: str) -> bool:
    if text:
        return write_if_changed(path, text)
    path.unlink()
    return True


def _load(paths: Iterable[Path]) -> list[Label]:
    problems: list[Problem] = []
    found = [(path, number, label) for path in paths for number, label in _read(path, problems)]
    problems += _contradictions(found)
    if problems:
        raise ConfigError(problems)
    return list({label.identity: label for _, _, label in found}.values())


def _order(label: Label) -> tuple[str, ...]:
    return label.agent_id, label.proposition_id, label.claim, label.key, label.labeller


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


def _read(path: Path, problems: list[Problem]) -> list[tuple[int, Label]]:
    def parse(line: str) -> Label:
        label = parse_label(line)
        if label.dimension != path.stem:
            raise ValueError(f"a label of {label.dimension} stands in {path.name}")
        return label

    return read_rows(path, parse, problems, remedy="correct the line, or delete it and label again")


def _contradictions(found: Collection[tuple[Path, int, Label]]) -> list[Problem]:
    first: dict[tuple[str, str], tuple[Label, str]] = {}
    problems = []
    for path, number, label in found:
        known, place = first.setdefault(label.identity, (label, f"{path}:{number}"))
        if known != label:
            problems.append(
                Problem(
                    f"{label.labeller} has labelled this judgment otherwise at {place}; delete one of the two",
                    str(path),
                    number,
                )
            )
    return problems + _two_kinds(found)


def _two_kinds(found: Iterable[tuple[Path, int | None, Label]]) -> list[Problem]:
    kinds: dict[str, tuple[str, str]] = {}
    problems = []
    for path, number, label in found:
        kind, place = kinds.setdefault(label.labeller, (label.labeller_kind, f"{path}:{number}"))
        if kind != label.labeller_kind:
            where = f" at {place}" if number else ""
            problems.append(
                Problem(
                    f"{label.labeller} is a {label.labeller_kind} here and a {kind}{where}; name a model by a name of its own",
                    str(path),
                    number,
                )
            )
    return problems
