"""Recorded judgments on disk: JSON lines to be read in a diff, keyed by the content that was judged."""

from collections.abc import Iterable
from pathlib import Path

from persona_pipeline.documents.json_lines import read_rows, write_if_changed
from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.judging.questions import PROPOSITION
from persona_pipeline.judging.recording import Recording, parse_line
from persona_pipeline.settings import get_settings

__all__ = [
    "PROPOSITION",
    "Recording",
    "load_recording_file",
    "load_recordings",
    "load_with_failures",
    "sign_recordings",
    "signing_secret",
    "write_recordings",
]


def load_recordings(folder: Path, *, secret: bytes | None = None) -> dict[str, Recording]:
    """Return the answers recorded in a folder at any depth, by key. A missing folder has none.

    Args and Raises: see ``load_with_failures``.
    """
    return load_with_failures(folder, secret=secret)[0]


def load_with_failures(
    folder: Path, *, secret: bytes | None = None
) -> tuple[dict[str, Recording], dict[str, Recording]]:
    """Return the answers recorded in a folder, and apart from them what failed when it was last asked, both by key.

    A key may be in both: then it was asked again, as with ``--fresh``, and failed.

    Args:
        secret: every line must be signed with it; None: by default that of the settings, without one nothing need be signed.

    Raises:
        ConfigError: lines that are no recording or not signed, and keys recorded twice with different answers, each with
            its place.
    """
    secret = secret or signing_secret()
    answers: dict[str, Recording] = {}
    failures: dict[str, Recording] = {}
    places: dict[str, str] = {}
    problems: list[Problem] = []
    for path in sorted(folder.glob("**/*.jsonl")):
        for number, recording in _read(path, problems, secret):
            if recording.has_failed:
                failures.setdefault(recording.key, recording)
                continue
            earlier = answers.setdefault(recording.key, recording)
            place = places.setdefault(recording.key, f"{path}:{number}")
            if earlier.judged != recording.judged:
                problems.append(
                    Problem(
                        f"this judgment is recorded with another answer at {place}; delete one of the two",
                        str(path),
                        number,
                    )
                )
    if problems:
        raise ConfigError(problems)
    return answers, failures


def load_recording_file(path: Path, *, secret: bytes | None = None) -> list[Recording]:
    """Return the recordings of one file, failures among them; ``secret`` as in ``load_recordings``.

    Raises:
        ConfigError: lines that are no recording or not signed, each with its place.
    """
    problems: list[Problem] = []
    found = _read(path, problems, secret or signing_secret())
    if problems:
        raise ConfigError(problems)
    return [recording for _, recording in found]


def sign_recordings(folder: Path, secret: bytes) -> list[Path]:
    """Sign every recording of a folder, and return the files that changed.

    Raises:
        ConfigError: a file does not load.
    """
    from filelock import FileLock

    changed = []
    with FileLock(folder / ".lock"):
        for path in sorted(folder.glob("**/*.jsonl")):
            problems: list[Problem] = []
            found = _read(path, problems, None)
            if problems:
                raise ConfigError(problems)
            text = "".join(recording.to_line(secret) for _, recording in found)
            if write_if_changed(path, text):
                changed.append(path)
    return changed


def signing_secret() -> bytes | None:
    """Return the secret of the settings, ``PERSONA_RECORDINGS_SECRET``; None: recordings are not signed here."""
    found = get_settings().recordings_secret
    return None if found is None else found.get_secret_value().encode("utf-8")


def write_recordings(folder: Path, recordings: Iterable[Recording]) -> list[Path]:
    """Add recordings to their files, replacing those of the same key, and return the files that changed.

    An answer replaces that there was none; a failure leaves an earlier answer where it is, and counts before it. Files are sorted
    and replaced atomically; writers wait for one another.

    Raises:
        ConfigError: a file to be added to does not load.
    """
    from filelock import FileLock

    secret = signing_secret()
    by_file: dict[Path, list[Recording]] = {}
    for recording in recordings:
        by_file.setdefault(folder / recording.file, []).append(recording)
    changed = []
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        for path, added in sorted(by_file.items()):
            problems: list[Problem] = []
            known = [recording for _, recording in _read(path, problems, None)] if path.exists() else []
            if problems:
                raise ConfigError(problems)
            merged = {(item.key, item.has_failed): item for item in known}
            for item in added:
                if not item.has_failed:
                    merged.pop((item.key, True), None)
                merged[item.key, item.has_failed] = item
            ordered = sorted(
                merged.items(), key=lambda row: (row[1].proposition_id, row[1].claim, row[1].label, *row[0])
            )
            # Only what is recorded here is signed here: what stood there keeps the signature it has, or none.
            new = {(item.key, item.has_failed) for item in added}
            text = "".join(item.to_line(secret if name in new else None) for name, item in ordered)
            if write_if_changed(path, text):
                changed.append(path)
    return changed


def _read(path: Path, problems: list[Problem], secret: bytes | None) -> list[tuple[int, Recording]]:
    return read_rows(
        path,
        lambda line: parse_line(line, secret),
        problems,
        remedy="correct the line or delete it and record again",
    )
