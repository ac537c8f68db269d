"""Writes today's case into the workspace, for an assistant that works with files."""

import json
import sys
from pathlib import Path

case = json.load(sys.stdin)
Path(case["workspace_path"], "case.json").write_text(
    json.dumps({"id": case["test_id"], "text": case["case_input"]}, indent=2) + "\n", encoding="utf-8"
)
