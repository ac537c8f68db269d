"""Are the deployment files valid by what reads them? Kubernetes' own schemas, the strict way, and the Compose specification.

    python benchmarks/deployment.py

Both come from the package index into an environment that is thrown away (``kubernetes-validate`` and ``compose-spec``). Dagster's
chart has its schema in its repository alone, so that ``values.yaml`` is checked by ``helm`` and by tests/test_deploy.py.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
READ_COMPOSE = """
import sys, yaml
from compose_spec.models import ComposeSpecification
read = ComposeSpecification.model_validate(yaml.safe_load(open(sys.argv[1])))
print(f"compose.yaml passed, {len(read.services)} services")
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        programs = Path(name) / "bin"
        python = programs / "python"
        subprocess.run([sys.executable, "-m", "venv", name], check=True)
        installed = ("kubernetes-validate", "compose-spec", "pyyaml")
        subprocess.run([python, "-m", "pip", "install", "--quiet", *installed], check=True)
        checked = (
            [programs / "kubernetes-validate", "--strict", DEPLOY / "kubernetes.yaml"],
            [python, "-c", READ_COMPOSE, DEPLOY / "compose.yaml"],
        )
        return max(subprocess.run(command, check=False).returncode for command in checked)


if __name__ == "__main__":
    sys.exit(main())
