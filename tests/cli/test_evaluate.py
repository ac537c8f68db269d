"""The command line as a user runs it: its exit code and its two streams, in a process of its own where that is the point."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from persona_pipeline.reporting import statistics
from tests.suites.support import write
from tests.support.command_line import ASCII, Cli, apart, in_process
from tests.support.worlds import edit_json, replace_in, write_jsonl

BEFORE_DRIFT = ("--as-of", "2026-06-14T23:59:59Z")


def test_a_drift_is_code_1_json_on_stdout_and_a_table_on_stderr(sample_root: Path) -> None:
    done = apart("evaluate", "--mock-judge", PERSONA_ROOT=str(sample_root))
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert set(report) >= {"agents", "exit_code", "provenance"}
    assert report["exit_code"] == 1
    adherence = report["agents"]["michael"]["dimensions"]["adherence"]
    assert adherence["score"] < 1
    assert (adherence["unscored"], adherence["n_scored"], adherence["n_expected"]) == (None, 8, 8)
    assert adherence["propositions"]["michael-corporate-boilerplate"]["score"] == 0
    assert {item["dimension"] for item in report["agents"]["michael"]["regressions"]} >= {"adherence", "fluency"}
    assert report["agents"]["jim"]["regressions"] == []
    assert "! michael" in done.stderr
    assert "Michael Scott: 4 of 5 dimensions dropped; worst: " in done.stderr
    assert "michael-corporate-boilerplate" not in done.stderr, "-v shows every claim"


def test_on_a_terminal_nothing_is_gathered_that_only_a_file_shows(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    monkeypatch.setattr(statistics, "score_history", lambda *_: calls.append(None) or {})
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for arguments in ("", "--format json", "--output report.html --format html", "--save-snapshot run.json"):
        calls.clear()
        evaluate = ("evaluate", "--agents", "jim,pam", "--dimensions", "adherence")
        assert cli(*evaluate, *arguments.split(), cwd=tmp_path).returncode == 0
        assert len(calls) == (1 if arguments else 0), arguments


def test_evaluating_loads_nothing_that_only_others_need_and_needs_no_utf_8(cli: Cli, sample_root: Path) -> None:
    # This run makes the store, which takes its migrations.
    assert cli("evaluate", "--agents", "jim").returncode == 0
    code = (
        "import sys; sys.argv = ['p', 'evaluate', '--agents', 'jim']; from persona_pipeline.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "names = {'dagster', 'anthropic', 'openai', 'alembic', 'jinja2',"
        " 'fastapi', 'markdown_it', 'persona_pipeline.suites.running',"
        " 'persona_pipeline.viewer', 'persona_pipeline.lab'}\n"
        "print(sorted(names & set(sys.modules)), file=sys.stderr)"
    )
    environment = {**os.environ, **ASCII, "PERSONA_ROOT": str(sample_root)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=True)
    assert done.stderr.splitlines()[-1] == "[]"
    assert json.loads(done.stdout)["exit_code"] == 0


def test_what_cannot_be_judged_or_compared_is_code_3(cli: Cli, sample_root: Path) -> None:
    pam = ("evaluate", "--agents", "pam", "--dimensions", "adherence")
    assert cli(*pam, "--as-of", "2020-01-01T00:00:00Z").returncode == 3, "an empty window"
    edit_json(sample_root / "baselines" / "pam.json", lambda data: data["dimensions"].pop("adherence"))
    done = cli(*pam[:-1], "adherence,fluency", *BEFORE_DRIFT)
    assert (done.returncode, "adherence has no baseline" in done.stderr) == (3, True)
    replace_in(sample_root / "personas" / "pam.yaml", "Marlow Paper", "Marlow Papers")
    done = cli(*pam, "--mock-judge")
    assert done.returncode == 3
    adherence = json.loads(done.stdout)["agents"]["pam"]["dimensions"]["adherence"]
    assert (adherence["score"], adherence["unscored"], adherence["n_scored"]) == (None, "unrecorded", 0)
    assert "--judge anthropic --record" in done.stderr


def test_a_regression_outranks_coverage_and_configuration_outranks_all(cli: Cli, sample_root: Path) -> None:
    replace_in(sample_root / "personas" / "pam.yaml", "Marlow Paper", "Marlow Papers")
    assert cli("evaluate", "--agents", "pam,michael", "--dimensions", "adherence").returncode == 1
    replace_in(sample_root / "personas" / "jim.yaml", "display_name", "dispaly_name")
    done = cli("evaluate")
    assert done.returncode == 2
    assert "unknown key 'dispaly_name'; did you mean 'display_name'?" in done.stderr
    assert done.stdout == ""


USAGE_ERRORS = [
    *("evaluate --agents nobody", "evaluate --agents ,", "evaluate --dimensions adherance", "evaluate --window week"),
    *("evaluate --as-of yesterday", "evaluate --judge oracle", "evaluate --mock-judge --judge anthropic", "evaluate --record"),
    *("evaluate --format pdf", "evaluate --fail-on everything", "evaluate --regression-delta -1"),
    *("evaluate --regression-delta nan", "evaluate --samples 0", "evaluate --unknown-option", "no-such-command"),
    *("ingest missing.jsonl", "propositions show ann --dimension nothing"),
    # A run in a file is no matter of baselines.
    *("baseline --agents ann --save-snapshot run.json", "baseline --agents ann --snapshot run.json"),
]  # fmt: skip


def test_usage_errors_are_code_2(
    small_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = in_process(small_root, monkeypatch, capsys)
    for arguments in USAGE_ERRORS:
        done = cli(*arguments.split())
        assert (done.returncode, done.stdout, bool(done.stderr.strip())) == (2, "", True), arguments
    for width, said in {"x": "is 'x': input should be a valid integer", "": "is ''"}.items():
        done = cli("evaluate", PERSONA_JUDGE_WIDTH=width)
        assert (done.returncode, f"PERSONA_JUDGE_WIDTH {said}" in done.stderr, "Traceback" in done.stderr) == (
            2,
            True,
            False,
        )
    assert cli("evaluate", "--agents", "ann", PERSONA_RUN_DEADLINE="").returncode == 3, "an empty deadline is none"


def test_each_format_goes_to_a_file(cli: Cli, tmp_path: Path) -> None:
    for name, starts in {"markdown": "<!-- persona-pipeline", "junit": "<?xml"}.items():
        target = tmp_path / "deep" / f"report.{name}"
        options = ("--dimensions", "fluency", "--format", name, "--output", str(target))
        assert cli("evaluate", "--agents", "jim", *options, *BEFORE_DRIFT).returncode == 0
        assert target.read_text(encoding="utf-8").lstrip().lower().startswith(starts)


def test_baseline_writes_what_evaluate_compares_with(
    cli: Cli, sample_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSONA_MESSAGE_VERDICTS", "400")
    monkeypatch.setenv("PERSONA_ANCHORS", "20")
    before = (sample_root / "baselines" / "jim.json").read_bytes()
    assert cli("baseline", "--agents", "jim", "--windows", "1", *BEFORE_DRIFT).returncode == 0
    assert (sample_root / "baselines" / "jim.json").read_bytes() == before, "the committed one is what the data gives"
    assert cli("baseline", "--agents", "michael").returncode == 1, "a baseline never spans a drift"
    assert cli("baseline", "--agents", "michael", "--accept", "the new manner").returncode == 0
    again = ("evaluate", "--agents", "michael", "--dimensions", "adherence,fluency")
    assert cli(*again).returncode == 0
    assert cli(*again, *BEFORE_DRIFT).returncode == 0, "a rise is no regression"


def test_a_baseline_is_of_four_windows_where_there_are_so_many(cli: Cli, sample_root: Path) -> None:
    done = cli("baseline", "--agents", "jim", "--dimensions", "adherence", *BEFORE_DRIFT)
    golden = json.loads((sample_root / "baselines" / "jim.json").read_text(encoding="utf-8"))
    assert golden["provenance"]["dimensions"]["adherence"]["windows"] == 2
    assert "jim: the baseline is of 2 of 4 windows" in done.stderr and "2 without a message" in done.stderr


def test_lines_that_were_left_out_are_named(cli: Cli, sample_root: Path) -> None:
    write_jsonl(sample_root / "messages" / "more.jsonl", [{"id": "x1", "agent_id": "jim"}])
    for command in ("evaluate", "baseline"):
        done = cli(command, "--agents", "jim", "--dimensions", "fluency", *BEFORE_DRIFT)
        assert done.returncode == 0
        assert "left out: " in done.stderr and "more.jsonl:1" in done.stderr


def test_ingest_names_bad_lines_and_keeps_good_ones(cli: Cli, tmp_path: Path) -> None:
    row = {"id": "x1", "agent_id": "jim", "channel": "general", "text": "hi", "created_at": "2026-06-01T10:00:00Z"}
    path = write_jsonl(
        tmp_path / "more.jsonl", [row, {**{k: v for k, v in row.items() if k != "text"}, "id": "x2", "txt": "?"}]
    )
    done = cli("ingest", str(path))
    assert done.returncode == 2
    assert "1 added, 0 changed, 0 known, 1 left out" in done.stdout
    assert f"{path}:2: text is missing; did you mean 'txt'?" in done.stderr
    path = write_jsonl(path, [row])
    assert (cli("ingest", str(path)).returncode, "0 added") == (0, cli("ingest", str(path)).stdout[:7])


def test_validate_finds_everything_at_once(cli: Cli, sample_root: Path) -> None:
    assert cli("validate").returncode == 0
    replace_in(sample_root / "propositions" / "adherence" / "pam.yaml", "weight: ", "wieght: ")
    replace_in(sample_root / "personas" / "jim.yaml", "persona:", "persone:")
    path = sample_root / "propositions" / "fluency" / "_default.yaml"
    replace_in(path, "{{agent_name}}", "{{agent_nam}}")
    write(sample_root, {"nudges/pam.yaml": "anti_convergance: []", "lexicons/agreement.de.yaml": "phrases: genau"})
    done = cli("validate")
    assert done.returncode == 2
    for said in (
        *("did you mean 'weight'?", "did you mean 'persona'?", "warning: ", "{{agent_nam}} is unknown"),
        *("pam.yaml:1:1: unknown key 'anti_convergance'", "agreement.de.yaml:1:10: phrases: must be a list"),
    ):
        assert said in done.stderr
    # A file is found from its own folder.
    done = cli("validate", "michael.yaml", cwd=sample_root / "personas")
    assert (done.returncode, done.stdout.strip()) == (0, "1 file is valid")


@pytest.mark.parametrize(
    ("file", "variable", "says"),
    [
        ("fluency/_default", "{{channel_name}}", "is not filled in for fluency; it has agent_name"),
        ("adherence/_default", "{{action}}", "is filled in by the action gate and with level: action"),
        (
            "adherence/_default",
            "{{ agent_name }}",
            "is not filled in; write it with double braces and without spaces: ",
        ),
    ],
)
def test_variables_that_stay_as_they_are_are_warned_of(
    cli: Cli, sample_root: Path, file: str, variable: str, says: str
) -> None:
    path = sample_root / "propositions" / f"{file}.yaml"
    replace_in(path, "{{agent_name}}", variable)
    done = cli("validate", path.name, cwd=path.parent)
    assert done.returncode == 0
    assert f"{variable} {says}" in done.stderr


def test_propositions_show_prints_the_merged_set(cli: Cli) -> None:
    done = cli("propositions", "show", "pam", "--dimension", "adherence", "--json")
    shown = json.loads(done.stdout)
    assert shown["agent_id"] == "pam"
    assert len(shown["propositions"]) == 7
    assert "{{agent_name}}" in shown["propositions"][0]["claim"]
    assert "did you mean 'pam'" in cli("propositions", "show", "pma", "--dimension", "adherence").stderr


def test_report_shows_what_the_store_holds(cli: Cli, tmp_path: Path) -> None:
    assert cli("report").returncode == 3, "nothing was evaluated yet"
    cli("evaluate", "--agents", "michael", "--dimensions", "adherence", "--history", "2")
    done = cli("report", "--since", "10d", "--format", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["agents"]["michael"]["regressions"]


def test_the_newest_scores_are_a_table(cli: Cli, tmp_path: Path) -> None:
    import pandas as pd
    import pyarrow.parquet

    run = json.loads(cli("evaluate", "--agents", "michael", "--dimensions", "adherence,fluency").stdout)
    scores = {(a, d): item["score"] for a, agent in run["agents"].items() for d, item in agent["dimensions"].items()}
    table = pd.read_csv(io.StringIO(cli("report", "--agents", "michael", "--format", "csv").stdout))
    assert dict(zip(zip(table["agent"], table["dimension"], strict=True), table["score"], strict=True)) == scores
    path = tmp_path / "made" / "claims.parquet"
    parquet = ("--format", "parquet", "--by", "claim", "--output", str(path))
    assert cli("report", "--agents", "michael", *parquet).returncode == 0
    claims = pd.read_parquet(path)
    # A column of texts is one where all of them are missing, too.
    kinds = {field.name: str(field.type) for field in pyarrow.parquet.read_schema(path)}
    assert {kinds[name] for name in ("claim_id", "quote", "unscored", "recommendation")} == {"large_string"}
    assert claims["unscored"].isna().all()
    assert {"claim_id", "score", "quote"} <= set(claims.columns) and len(claims) > 10


def test_what_a_report_cannot_be_is_named(cli: Cli) -> None:
    cli("evaluate", "--agents", "pam", "--dimensions", "fluency")
    for arguments, says in {
        "--format parquet": "name a file with --output",
        "--format csv --by word": "there is no row a 'word'",
        "--format prometheus": "use html, json, markdown",
        "--since lastweek": "--since 'lastweek' is not",
    }.items():
        done = cli("report", "--agents", "pam", *arguments.split())
        assert (done.returncode, says in done.stderr) == (2, True), done.stderr


def test_the_json_schemas_in_the_project_are_current() -> None:
    from persona_pipeline.cli.world.setup import schema_texts

    for name, text in schema_texts().items():
        assert (Path(__file__).parents[2] / "schemas" / name).read_text(encoding="utf-8") == text, "run make docs"


def test_what_is_to_do_records_the_very_judgments_that_are_missing(cli: Cli, sample_root: Path) -> None:
    replace_in(sample_root / "personas" / "pam.yaml", "persona: |", "persona: |\n  New.")
    done = cli("evaluate", "--agents", "pam", "--samples", "2", "--window", "96h", *BEFORE_DRIFT)
    assert done.returncode == 3
    options = "--agents pam --as-of 2026-06-14T23:59:59Z --window 96h --samples 2 --judge anthropic --record"
    assert f"to do: record with `persona-pipeline evaluate {options}`" in done.stderr
