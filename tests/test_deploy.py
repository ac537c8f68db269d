"""The files of deploy/: they are the package's templates, they load, and what they name exists. No container engine is needed.

tests/test_rolling_restart.py runs what the compose file says.
"""

import re
import subprocess
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import Settings
from persona_pipeline.cli.world.setup import deployment
from persona_pipeline.defs.platform.settings import OrchestrationSettings
from persona_pipeline.deployment import render_deployment
from persona_pipeline.world.world import template_world, write_new
from tests.support.cohort import PROJECT
from tests.support.deployment import DEPLOY, example_environment, interpolated, load

ELSEWHERE = {
    "PERSONA_COMMIT",
    "PERSONA_DATABASE_URL",
    "PERSONA_DAGSTER_DATABASE_URL",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
}
KNOWN = ELSEWHERE | {
    f"PERSONA_{name.upper()}" for model in (Settings, OrchestrationSettings) for name in model.model_fields
}
REQUIRED = {"POSTGRES_PASSWORD": "p", "DOCKER_GROUP": "999"}
COMPOSE: dict[str, Any] = interpolated(load("compose.yaml"), {**example_environment(), **REQUIRED})
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = ("migrate", "code", "webserver", "viewer", "daemon")
LAUNCHER = load("dagster.yaml")["run_launcher"]
VALUES = load("values.yaml")
CODE = VALUES["dagster-user-deployments"]["deployments"][0]
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))
POD_SPECS = {
    f"{item['kind']} {item['metadata']['name']}": item["spec"]["template"]["spec"]
    for item in MANIFESTS
    if "template" in item["spec"]
}
CHART_PODS = {"webserver": VALUES["dagsterWebserver"], "daemon": VALUES["dagsterDaemon"], "code": CODE}
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in sorted(DEPLOY.iterdir()) if path.name != ".env"}


def test_they_are_what_the_templates_give() -> None:
    assert render_deployment("persona-pipeline", source=True) == TEXTS


def test_a_world_of_ones_own_gets_them_with_its_name_and_the_versions_of_here(tmp_path: Path) -> None:
    world = tmp_path / "My Museum"
    write_new(world, {**template_world(), **deployment(world)})
    written = {path.name: path.read_text(encoding="utf-8") for path in (world / "deploy").iterdir()}
    assert set(written) == {*TEXTS, "constraints.txt"}
    compose = yaml.safe_load(written["compose.yaml"])
    assert compose["name"] == "my-museum" and "my-museum:" in compose["services"]["code"]["image"]
    # Apart from the name, only how the image is built differs.
    for name in {*TEXTS} - {"Dockerfile", "Dockerfile.dockerignore"}:
        assert written[name].replace("my-museum", "persona-pipeline") == TEXTS[name], name
    pinned = dict(line.split("==") for line in written["constraints.txt"].splitlines() if not line.startswith("#"))
    assert pinned["dagster"] == dg.__version__ and {"persona-pipeline", "dagster-docker", "psycopg"} <= set(pinned)
    for line in re.findall(r"^COPY (?:--\S+ )?(.*) \S+$", written["Dockerfile"], re.MULTILINE):
        assert all((world / name).is_file() for name in line.split())
    assert "deploy/.env" in (world / ".gitignore").read_text(encoding="utf-8").split()


def test_a_world_that_is_there_gets_nothing_but_its_deployment_once(tmp_path: Path) -> None:
    (tmp_path / "personas").mkdir()
    written = write_new(tmp_path, deployment(tmp_path))
    assert {path.parent.name for path in written} == {"deploy"}
    with pytest.raises(ConfigError, match=r"compose\.yaml: exists already"):
        write_new(tmp_path, deployment(tmp_path))


@pytest.mark.parametrize("name", TEXTS)
def test_every_variable_of_ours_is_a_setting(name: str) -> None:
    assert set(re.findall(r"\b(?:PERSONA|ANTHROPIC)_[A-Z_]+\b", TEXTS[name])) <= KNOWN


def test_what_compose_asks_for_stands_in_the_example() -> None:
    asked = set(re.findall(r"\$\{([A-Z_]+)", TEXTS["compose.yaml"]))
    assert asked == set(example_environment())
    settings = OrchestrationSettings.model_validate(
        {name.removeprefix("PERSONA_").lower(): value for name, value in example_environment().items() if value}
    )
    assert settings.judge == "recorded"
    for name in REQUIRED:
        others = {key: value for key, value in REQUIRED.items() if key != name}
        with pytest.raises(ValueError, match=name):
            interpolated(load("compose.yaml"), {**example_environment(), **others})


def commands() -> dict[str, list[str]]:
    found = {f"compose {name}": SERVICES[name]["command"] for name in OURS}
    found |= {f"check {name}": SERVICES[name]["healthcheck"]["test"][1:] for name in OURS[1:]}
    for name, spec in POD_SPECS.items():
        for container in spec["containers"]:
            if "command" in container:
                found[f"{name} {container['name']}"] = container["command"]
    return {name: words[0].split() if len(words) == 1 else words for name, words in found.items()}


@pytest.mark.parametrize("command", [pytest.param(words, id=name) for name, words in commands().items()])
def test_commands_are_installed_and_modules_exist(command: list[str]) -> None:
    scripts = {script.name for script in entry_points(group="console_scripts")} | {"python"}
    assert command[0] in scripts
    for module in re.findall(r"\bpersona_pipeline\.[\w.]+", " ".join(command)):
        assert find_spec(module) is not None


def test_images_are_pinned_by_a_full_version() -> None:
    for text in TEXTS.values():
        for image in re.findall(r"^\s*(?:- )?(?:image:|FROM) (?!&|\*|\$)(\S+)", text, re.MULTILINE):
            assert re.search(r":v?\d+\.\d+\.\d+(-\w+)*$|:\d+\.\d+(-\w+)*$", image), image


def test_only_the_daemon_which_starts_runs_has_the_key() -> None:
    keyed = {name for name, service in SERVICES.items() if "ANTHROPIC_API_KEY" in service.get("environment", {})}
    assert keyed == {"daemon"}
    with_docker = {
        name for name, service in SERVICES.items() if any("docker.sock" in item for item in service.get("volumes", []))
    }
    assert (
        with_docker == {name for name, service in SERVICES.items() if "group_add" in service} == {"daemon", "webserver"}
    )


def test_a_run_gets_what_its_daemon_has() -> None:
    config = LAUNCHER["config"]
    assert sorted(config["env_vars"]) == sorted(SERVICES["daemon"]["environment"])
    assert config["network"] == COMPOSE["networks"]["default"]["name"]
    made = config["container_kwargs"]
    assert made["volumes_from"] == [SERVICES["code"]["container_name"]]
    assert {name: made[name] for name in ("cap_drop", "security_opt", "init")} == {
        name: SERVICES["code"][name] for name in ("cap_drop", "security_opt", "init")
    }
    assert SERVICES["code"]["environment"]["DAGSTER_CURRENT_IMAGE"] == SERVICES["code"]["image"]


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_is_bounded_and_what_it_names_is_there(name: str) -> None:
    service = SERVICES[name]
    assert set(service.get("depends_on", {})) <= set(SERVICES)
    for volume in service.get("volumes", []):
        source = volume.partition(":")[0]
        assert source in {*COMPOSE["volumes"], "/var/run/docker.sock"} or (DEPLOY / source).exists()
    assert {"cpus", "memory"} <= set(service["deploy"]["resources"]["limits"])
    if name in OURS:
        assert service["user"] == "1000:1000" and service["cap_drop"] == ["ALL"]
        assert name == "migrate" or "healthcheck" in service
        # Nothing but the migration, which makes the volume, and git-sync could write to the world.
        world = [volume for volume in service["volumes"] if ":/srv/world" in volume]
        assert name == "migrate" or world == ["..:/srv/world:ro"]


def test_nothing_starts_before_the_databases_are_migrated() -> None:
    assert SERVICES["code"]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    for name in ("webserver", "viewer", "daemon"):
        assert set(SERVICES[name]["depends_on"]) == {"code"}


def test_the_interface_is_not_published_to_the_world_without_a_login() -> None:
    open_ports = {
        port
        for service in SERVICES.values()
        for port in service.get("ports", [])
        if "login" not in service.get("profiles", [])
    }
    assert open_ports == {"127.0.0.1:3000:3000", "127.0.0.1:3001:3001"}
    sites = re.split(r"(?m)^(?=\{\$SITE\})", TEXTS["Caddyfile"])[1:]
    assert len(sites) == 2 and all("basic_auth" in site for site in sites)
    assert "--read-only" in SERVICES["viewer"]["command"] and VALUES["dagsterWebserver"]["enableReadOnly"] is True
    [ingress] = [item for item in MANIFESTS if item["kind"] == "Ingress"]
    [rule] = ingress["spec"]["rules"]
    assert [path["backend"]["service"]["name"] for path in rule["http"]["paths"]] == ["persona-login"]


def test_the_image_copies_what_exists_and_the_context_lets_it_through() -> None:
    text = TEXTS["Dockerfile"]
    copied = [word for line in re.findall(r"^COPY (?:--\S+ )?(.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert {"deploy/dagster.yaml", "persona_pipeline"} <= set(copied)
    for name in copied:
        assert (PROJECT / name).exists(), name
        assert f"!{name}" in TEXTS["Dockerfile.dockerignore"].splitlines()
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE)[-1] == "1000:1000"


def test_the_lock_gives_the_image_its_versions() -> None:
    """The line of the Dockerfile that makes constraints of the lock."""
    found = re.search(r"sed -nE '([^']+)' requirements-dev.lock", TEXTS["Dockerfile"])
    assert found is not None
    lock = PROJECT / "requirements-dev.lock"
    made = subprocess.run(["sed", "-nE", found[1], lock], capture_output=True, text=True, check=True).stdout
    lines = made.splitlines()
    assert len(lines) == len(re.findall(r"^\S+==", lock.read_text(encoding="utf-8"), re.MULTILINE))
    assert not any("\\" in line or "[" in line for line in lines)
    assert {"dagster", "dagster-docker"} <= {line.partition("==")[0] for line in lines}


def test_the_chart_has_the_version_and_the_settings_of_the_project() -> None:
    assert f"--version {dg.__version__} " in TEXTS["values.yaml"]
    instance = yaml.safe_load((PROJECT / "dagster.yaml").read_text(encoding="utf-8"))
    limits = VALUES["concurrency"]
    assert limits["enabled"] is True, "the chart leaves the limits out otherwise"
    assert limits["runs"]["tagConcurrencyLimits"] == instance["concurrency"]["runs"]["tag_concurrency_limits"]
    assert limits["pools"]["defaultLimit"] == instance["concurrency"]["pools"]["default_limit"]
    added = VALUES["additionalInstanceConfig"]
    assert added == {name: instance[name] for name in ("run_queue", "run_monitoring", "run_retries")}
    # What is added must not stand twice: the chart writes these unless they are off.
    daemon = VALUES["dagsterDaemon"]
    assert not any(daemon[name]["enabled"] for name in ("runCoordinator", "runMonitoring", "runRetries"))
    logs = VALUES["computeLogManager"]["config"]["customComputeLogManager"]
    of_the_image = load("dagster.yaml")
    assert all(logs[name] == of_the_image["compute_logs"][name] for name in ("module", "class"))
    assert find_spec(CODE["codeServerArgs"][1]) is not None
    own = {"storage": 0, "run_launcher": 0, "compute_logs": 0}
    assert {**of_the_image, **own} == {**instance, **own} and "postgres" in of_the_image["storage"]
    assert VALUES["postgresql"]["postgresqlScheme"] == "postgresql+psycopg2"


def containers() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Return each container of a pod with the pod's security context."""
    found = {name: (pod["podSecurityContext"], pod) for name, pod in CHART_PODS.items()}
    for name, spec in POD_SPECS.items():
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            found[f"{name} {container['name']}"] = (spec["securityContext"], container)
    found["code git-sync"] = (CODE["podSecurityContext"], CODE["initContainers"][0])
    return found


@pytest.mark.parametrize(("pod", "container"), [pytest.param(*item, id=name) for name, item in containers().items()])
def test_each_container_is_bounded_watched_and_nobodys_root(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert pod["runAsNonRoot"] is True and pod["runAsUser"] > 0
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert set(container["resources"]) == {"requests", "limits"}
    assert container.get("name") == "migrate" or {"livenessProbe", "startupProbe"} & set(container)


def test_runs_get_the_world_from_git_and_keep_what_they_write() -> None:
    mounts = {mount["name"]: mount["mountPath"] for mount in CODE["volumeMounts"]}
    assert mounts == {"state": "/srv/state", "world": "/srv/world"}
    environment = {item["name"]: item["value"] for item in CODE["env"]}
    assert (environment["PERSONA_ROOT"], environment["PERSONA_STATE"]) == ("/srv/world/current", "/srv/state")
    assert CODE["includeConfigInLaunchedRuns"] == {"enabled": True}
    [claim] = [item for item in MANIFESTS if item["kind"] == "PersistentVolumeClaim"]
    for spec in (VALUES["dagsterWebserver"], VALUES["dagsterDaemon"], CODE):
        claims = [
            volume["persistentVolumeClaim"]["claimName"]
            for volume in spec["volumes"]
            if "persistentVolumeClaim" in volume
        ]
        assert claims == [claim["metadata"]["name"]]


def test_no_secret_stands_in_a_file() -> None:
    referred = {secret["name"] for pod in CHART_PODS.values() for secret in pod.get("envSecrets", [])}
    for spec in POD_SPECS.values():
        for container in spec["containers"]:
            referred |= {source["secretRef"]["name"] for source in container["envFrom"]}
    assert referred == {"persona-environment", "persona-login"}
    assert all(
        f"secret generic {name} " in TEXTS["values.yaml"] for name in ("persona-environment", "persona-postgres")
    )
    filled = {
        name: value for name, value in example_environment().items() if re.search("PASSWORD|TOKEN|KEY|SECRET", name)
    }
    assert not any(filled.values())
