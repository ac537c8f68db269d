"""Where reports are kept: in a folder of this machine, or in an object store that every machine reaches."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from persona_pipeline.errors import ConfigError
from persona_pipeline.settings import get_settings

STATE = ".persona"


def reports_folder(root: Path) -> Path:
    """Return where the reports of the world at ``root`` belong: PERSONA_REPORTS, else ``reports`` in the folder of the state.

    Of a URL it is a path of that store, which is written and read like one of the disk.

    Raises:
        ConfigError: nothing is installed that knows the URL's store.
    """
    settings = get_settings()
    if "://" not in settings.reports:
        return Path(settings.reports) if settings.reports else (settings.state or root / STATE) / "reports"
    from upath import UPath

    folder = UPath(settings.reports)
    try:
        # What the store needs is imported only now.
        assert folder.fs
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"PERSONA_REPORTS is {settings.reports!r}: {error}; install the extra s3, gcs or azure of persona-pipeline"
        ) from error
    return cast(Path, folder)


def write_texts(folder: Path, texts: Mapping[str, str]) -> Path:
    """Write files, text by name, and return their folder; it is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder
