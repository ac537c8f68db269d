"""The files of deploy/: they load, name what exists, and their processes start and run a job. No container engine is needed."""

import re
import subprocess
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from persona_pipeline.defs.platform.instance_storage import URL_VARIABLES
from persona_pipeline.defs.platform.settings import OrchestrationSettings
from persona_pipeline.settings import Settings
from tests.support.workers import PROJECT

DEPLOY = PROJECT / "deploy"
ELSEWHERE = {"PERSONA_COMMIT", *URL_VARIABLES, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"}
KNOWN = ELSEWHERE | {
    f"PERSONA_{name.upper()}" for model in (Settings, OrchestrationSettings) for name in model.model_fields
}
OURS = ("code", "webserver", "daemon", "worker")


def load(name: str) -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


COMPOSE, VALUES = load("compose.yaml"), load("values.yaml")
COMMANDS = {name: COMPOSE["services"][name]["command"] for name in OURS}
CHECKS: dict[str, list[str]] = {
    name: service["healthcheck"]["test"][1:]
    for name, service in COMPOSE["services"].items()
    if "healthcheck" in service
}


@pytest.mark.parametrize("path", sorted(DEPLOY.iterdir()), ids=lambda path: path.name)
def test_every_variable_of_ours_is_a_setting(path: Path) -> None:
    named = set(re.findall(r"\b(?:PERSONA|ANTHROPIC)_[A-Z_]+\b", path.read_text(encoding="utf-8")))
    assert named <= KNOWN


def test_what_compose_asks_for_stands_in_the_example() -> None:
    compose, example = ((DEPLOY / name).read_text(encoding="utf-8") for name in ("compose.yaml", "example.env"))
    asked = set(re.findall(r"\$\{([A-Z_]+)", compose))
    assert asked == set(re.findall(r"^([A-Z_]+)=", example, re.MULTILINE))
    settings = OrchestrationSettings.model_validate(
        {name.removeprefix("PERSONA_").lower(): value for name, value in example_environment().items()}
    )
    assert settings.judge == "recorded"


def example_environment() -> dict[str, str]:
    lines = (DEPLOY / "example.env").read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if not line.startswith("#"))
    return {name: value for name, _, value in pairs if value}


@pytest.mark.parametrize(
    "command",
    [*COMMANDS.values(), *(CHECKS[name] for name in OURS if name in CHECKS)],
    ids=lambda item: " ".join(item[:3]),
)
def test_commands_are_installed_and_modules_exist(command: list[str]) -> None:
    scripts = {script.name for script in entry_points(group="console_scripts")} | {"python"}
    assert command[0] in scripts
    for module in (word for word in command if word.startswith("persona_pipeline.")):
        assert find_spec(module) is not None


@pytest.mark.parametrize(
    "text", [(DEPLOY / "compose.yaml").read_text("utf-8"), (DEPLOY / "Dockerfile").read_text("utf-8")]
)
def test_images_are_pinned_by_a_full_version(text: str) -> None:
    images = re.findall(r"(?:image:|FROM) (?!base)(\S+)", text)
    assert images
    for image in images:
        assert re.search(r":\d+\.\d+(\.\d+)?(-\w+)*$", image), image


def test_only_what_judges_gets_the_key() -> None:
    services = COMPOSE["services"]
    keyed = {name for name, service in services.items() if "ANTHROPIC_API_KEY" in service["environment"]}
    assert keyed == {"code", "worker"}


def test_services_and_volumes_that_are_named_are_defined() -> None:
    services = COMPOSE["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in COMPOSE["volumes"]
    for name in ("code", "webserver", "daemon", "worker"):
        assert services[name]["image"] == services["code"]["image"]
    assert load("workspace.yaml")["load_from"][0]["grpc_server"]["host"] in services


def test_the_interface_is_not_published_to_the_world() -> None:
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:3000:3000"]


def test_the_image_copies_what_exists_and_the_context_lets_it_through() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    copied = [word for line in re.findall(r"^COPY (?:--\S+ )?(.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert {"dagster.yaml", "persona_pipeline", "personas", "recordings"} <= set(copied)
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for name in copied:
        assert (PROJECT / name).exists(), name
        assert f"!{name}" in allowed


def test_the_lock_gives_the_image_its_versions(tmp_path: Path) -> None:
    """The line of the Dockerfile that makes constraints of the lock."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    found = re.search(r"sed -nE '([^']+)' requirements-dev.lock", text)
    assert found is not None
    lock = PROJECT / "requirements-dev.lock"
    made = subprocess.run(["sed", "-nE", found[1], lock], capture_output=True, text=True, check=True).stdout
    lines = made.splitlines()
    assert len(lines) == len(re.findall(r"^\S+==", lock.read_text(encoding="utf-8"), re.MULTILINE))
    assert not any("\\" in line or "[" in line for line in lines)
    assert {"dagster", "celery", "dagster-celery"} <= {line.partition("==")[0] for line in lines}


def test_the_chart_has_the_version_and_the_limits_of_the_project() -> None:
    text = (DEPLOY / "values.yaml").read_text(encoding="utf-8")
    assert f"--version {dg.__version__} " in text
    instance = yaml.safe_load((PROJECT / "dagster.yaml").read_text(encoding="utf-8"))
    limits = VALUES["concurrency"]
    assert limits["runs"]["tagConcurrencyLimits"] == instance["concurrency"]["runs"]["tag_concurrency_limits"]
    assert limits["pools"]["defaultLimit"] == instance["concurrency"]["pools"]["default_limit"]
    coordinator = VALUES["dagsterDaemon"]["runCoordinator"]["config"]["queuedRunCoordinator"]
    assert set(coordinator) == {"dequeueIntervalSeconds"}, "limits stand in `concurrency`; the chart refuses both"
    module = VALUES["dagster-user-deployments"]["deployments"][0]["codeServerArgs"][1]
    assert find_spec(module) is not None
    assert VALUES["postgresql"]["postgresqlScheme"] == "postgresql+psycopg2"
