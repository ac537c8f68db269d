"""The settings of one world among others: every ``PERSONA_`` setting is a field; what is not said is as the environment says."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, get_args

import dagster as dg
from pydantic import SecretStr, ValidationError, create_model
from pydantic.fields import FieldInfo

from persona_pipeline.defs.platform.resources import NOT_OF_ASSETS, config_fields
from persona_pipeline.defs.platform.settings import OrchestrationSettings
from persona_pipeline.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.options import EvaluationRequest, given
from persona_pipeline.settings import Settings

# What belongs to one world alone: the environment's is never taken. The folder is a field of the component itself.
OF_ONE_WORLD: dict[str, Any] = {"database_url": None, "state": None, "reports": ""}
_JUDGING = {name: field for name, field in Settings.model_fields.items() if name != "root"}
_RUNNING = {name: field for name, field in OrchestrationSettings.model_fields.items() if not name.startswith("celery")}
# Whom and which moment an evaluation is about, a run says.
_ASKED = {
    name: field
    for name, field in config_fields(without=(*NOT_OF_ASSETS, "as_of", "since", "record", "fresh")).items()
    if name not in {**_JUDGING, **_RUNNING}
}
NAMES = tuple(sorted({*_JUDGING, *_RUNNING, *_ASKED}))


def _written(field: FieldInfo) -> Any:
    """Return the type of a setting as YAML has it, or None."""
    kinds = [kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not type(None)]
    if any(kind in (SecretStr, Path) for kind in kinds):
        return str | None
    return Optional[field.annotation]  # noqa: UP045


class WorldSettings(dg.Model, dg.Resolvable):
    """Settings of a world: those of the environment without ``PERSONA_``, in small letters."""


if not TYPE_CHECKING:
    # With a field a setting: a misspelt one is found with its line by ``dg check yaml``.
    WorldSettings = create_model(
        "WorldSettings",
        __base__=WorldSettings,
        __module__=__name__,
        **{name: (_written(field), None) for name, field in sorted({**_JUDGING, **_RUNNING}.items())},
        **_ASKED,
    )


def world_settings(root: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the world in a folder, as a ``Place`` has them.

    Args:
        values: settings by name; the others are as the environment says, but for those of ``OF_ONE_WORLD``.

    Raises:
        ConfigError: a setting is unknown or has a value it cannot have; all such are named.
    """
    unknown = [name for name in values if name not in NAMES]
    if unknown:
        raise ConfigError(
            [
                Problem(f"settings: there is no {name!r}{did_you_mean(name, NAMES)}; docs/reference.md has them")
                for name in unknown
            ]
        )
    judging = {name: value for name, value in values.items() if name in _JUDGING}
    asked = given({name: value for name, value in values.items() if name in _ASKED})
    running = {name: value for name, value in values.items() if name in _RUNNING}
    try:
        settings = Settings(root=root, **{**OF_ONE_WORLD, **judging})
        return {
            "settings": settings,
            "orchestration_settings": OrchestrationSettings(**running),
            "options": EvaluationRequest(**asked).model_dump(exclude_unset=True),
        }
    except ValidationError as error:
        problems = [
            Problem(f"settings: {item['loc'][0]} is {item['input']!r}: {item['msg'][0].lower()}{item['msg'][1:]}")
            for item in error.errors(include_url=False)
        ]
        raise ConfigError(problems) from None
