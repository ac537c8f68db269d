"""The documentation says what is so: its links, commands, variables, examples and tables against the code."""

import ast
import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

import persona_pipeline as pp
from docs.site.generated import cli_commands
from persona_pipeline.base.documents.yaml import parse_document, validate_document
from persona_pipeline.base.settings import Settings, get_settings
from persona_pipeline.cli.app import app
from persona_pipeline.corrections import Outcome
from persona_pipeline.corrections.nudges import Nudges
from persona_pipeline.corrections.service.app import create_app
from persona_pipeline.defs.component import MessagesFrom
from persona_pipeline.defs.platform.settings import OrchestrationSettings
from persona_pipeline.guard.labels.files import Label
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.lab.scenes import InterviewFile, SceneFields, load_scenes
from persona_pipeline.reporting.notify import VARIABLE
from persona_pipeline.reporting.pages.suites import result_line, summary_line
from persona_pipeline.reporting.text import template_text
from persona_pipeline.scoring.facts.known import CanonFact, CanonFile
from persona_pipeline.scoring.text.agreement import AgreementLexicon, is_agreement
from persona_pipeline.suites import Assert, load_suite, read_responses, run_suite
from persona_pipeline.suites.answering.base import Grants
from persona_pipeline.suites.format import registry
from persona_pipeline.suites.format import tests as suite_tests
from persona_pipeline.suites.format.models import ExecutionFields, HookFields, TrialsFields, WorkspaceFields
from persona_pipeline.suites.format.suite import SuiteFields
from persona_pipeline.suites.running.opening import load_targets
from persona_pipeline.suites.running.plan import explain
from persona_pipeline.suites.targets.registry import TARGETS, find_provider
from persona_pipeline.world import CorrectionSettings, World
from persona_pipeline.world.messages import files
from persona_pipeline.world.personas import PersonaFile
from persona_pipeline.world.propositions.models import CatchphraseEntry, PropositionEntry, PropositionFile
from persona_pipeline.world.settings import OF_A_WORLD, load_world_file
from tests.support.command_line import in_process
from tests.support.messages_server import Call, MessagesServer, Reply, message, verdicts
from tests.support.pull_requests import git
from tests.support.waiting import PATIENCE

PROJECT = Path(__file__).parents[1]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
TEXTS = {path.relative_to(PROJECT).as_posix(): path.read_text(encoding="utf-8") for path in PAGES}
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?:    [^\n]*\n|\n(?=    ))+")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """One code block. ``language``: "" for none given, ``indented`` where no fence could give one."""

    page: str
    number: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}-{self.number}"


def blocks_of(page: str) -> Iterator[Block]:
    found = [(match.start(), match[1], match[2]) for match in _FENCED.finditer(TEXTS[page])]
    prose = _FENCED.sub(lambda match: re.sub(r"[^\n]", ".", match[0]), TEXTS[page])
    found += [(match.start(), "indented", match[0]) for match in _INDENTED.finditer(prose)]
    for number, (_, language, text) in enumerate(sorted(found), start=1):
        yield Block(page, number, language, text)


BLOCKS = [block for page in TEXTS for block in blocks_of(page)]


def blocks(language: str, page: str | None = None) -> list[Block]:
    return [block for block in BLOCKS if block.language == language and page in (None, block.page)]


def prose_of(page: str) -> str:
    return _INDENTED.sub("\n", _FENCED.sub("", TEXTS[page]))


def code_words(page: str) -> set[str]:
    """Every word of the page that stands in inline code."""
    return {word for span in re.findall(r"`([^`]+)`", prose_of(page)) for word in re.findall(r"[\w$-]+", span)}


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def test_links_lead_somewhere() -> None:
    broken = []
    for page in (*TEXTS, "CHANGELOG.md", "CONTRIBUTING.md"):
        text = (PROJECT / page).read_text(encoding="utf-8")
        for target in _LINK.findall(re.sub(r"`[^`]*`", "", _INDENTED.sub("\n", _FENCED.sub("", text)))):
            path, _, anchor = target.partition("#")
            place = (PROJECT / page).parent / path if path else PROJECT / page
            headings = place.read_text(encoding="utf-8") if anchor and place.is_file() else ""
            anchors = {"", *map(slug, re.findall(r"^#+ (.*)$", headings, re.MULTILINE))}
            if not re.match(r"[a-z]+:", target) and not (place.exists() and anchor in anchors):
                broken.append((page, target))
    assert broken == []


# Ceilings of words, which only go down, and how many sentences may be long.
MOST_WORDS = 38_500
MOST_WORDS_OF_A_HOW_TO = {"docs/how-to/deploy.md": 1_100}
LONG_SENTENCES = 0.05
# Turns of phrase that a reader has to translate, in the docs' own sentences.
ARCHAIC = re.compile(
    r"\b(?:anew|nobody|somebody|everybody|anybody|whoever|besides?|of now|by itself|so (?:many|few)|mended|told apart"
    r"|(?<!there )(?:is|are) no(?! longer| more| one)|st(?:ands|ood) (?:in|on|here|there|under)|tells? apart|holds? of"
    r"|what (?:fell|comes|came|stands|follows)|of (?:whom|which|what) (?:is|are|one|many)|for whom)\b",
    re.IGNORECASE,
)


def sentences_of(page: str) -> list[str]:
    """The sentences of a page outside code, headings and tables."""
    lines = [line for line in prose_of(page).splitlines() if not re.match(r"\s*(?:\||#|!\[|<!--)", line)]
    blocks = re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ", "\n".join(lines))
    text = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block.split())) for block in blocks]
    return [one for block in text for one in re.split(r"(?<=[.!?])[\s*_\")]+(?=\S)", block) if one.split()]


def test_the_docs_are_short() -> None:
    words = {page: len(text.split()) for page, text in TEXTS.items() if page != "README.md"}
    assert sum(words.values()) <= MOST_WORDS
    long = {
        page: number
        for page, number in words.items()
        if page.startswith("docs/how-to/") and number > MOST_WORDS_OF_A_HOW_TO.get(page, 700)
    }
    assert not long


def test_sentences_are_short() -> None:
    sentences = [(page, one) for page in TEXTS for one in sentences_of(page)]
    long = [f"{page}: {one}" for page, one in sentences if len(one.split()) > 25]
    assert len(long) <= LONG_SENTENCES * len(sentences), "\n".join(long)


def test_pages_are_in_plain_english() -> None:
    lines = [(page, line) for page in TEXTS for line in re.sub(r"`[^`]*`", "", prose_of(page)).splitlines()]
    assert [line for line in lines if ARCHAIC.search(line[1])] == []


def test_a_how_to_begins_with_what_to_type() -> None:
    pages = [page for page in TEXTS if page.startswith("docs/how-to/")]
    first = {page: next(blocks_of(page)).text.strip("\n").splitlines()[0] for page in pages}
    assert [page for page in pages if first[page] not in TEXTS[page].splitlines()[:6]] == []


def test_every_page_is_in_the_index() -> None:
    index = _LINK.findall(prose_of("docs/README.md"))
    pages = {path.relative_to(PROJECT / "docs") for path in (PROJECT / "docs").rglob("*.md")}
    assert {page.as_posix() for page in pages} - {*index, "README.md"} == set()


def commands() -> Iterator[tuple[str, str, bool]]:
    """Page, command line without its comment, and whether it is complete (inline code may leave arguments out)."""
    for block in [block for language in ("", "sh", "indented") for block in blocks(language)]:
        for line in block.text.replace("\\\n", " ").splitlines():
            text = re.split(r"\s{2,}|\s#", line.strip())[0]
            if re.match(r"(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?persona-pipeline ", text):
                yield block.page, text[text.index("persona-pipeline") :], True
    for block in blocks("yaml"):
        for line in re.findall(r"^ *- run: (persona-pipeline .*)$", block.text, re.MULTILINE):
            yield block.page, line, True
    for page in TEXTS:
        for span in re.findall(r"`(persona-pipeline [^`]+)`", prose_of(page)):
            yield page, span, False


COMMANDS = list(dict.fromkeys(commands()))


def test_there_are_commands_to_check() -> None:
    named = {text.split()[1] for _, text, _ in COMMANDS}
    assert {"evaluate", "baseline", "report", "ingest", "suite", "corrections", "propositions", "doctor"} <= named


def test_commands_are_ones_that_there_are() -> None:
    whole = typer.main.get_command(app)
    wrong = {text: found for _, text, complete in COMMANDS if (found := wrong_with(whole, text, complete))}
    assert wrong == {}


def wrong_with(command: Any, text: str, complete: bool) -> str:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)[1:]
    words = words[: next((place for place, word in enumerate(words) if set(word) <= set("|&;<>()")), len(words))]
    while words and (known := getattr(command, "commands", None)):
        if words[0] not in known:
            return f"there is no command {words[0]!r}"
        command = known[words.pop(0)]
    if hasattr(command, "commands"):
        return "it is a group of commands" if complete else ""
    try:
        # Parses and converts every option and argument, and runs nothing.
        command.make_context("persona-pipeline", words)
    except Exception as error:
        if complete or type(error).__name__ != "MissingParameter":
            return str(getattr(error, "message", error))
    return ""


def test_dagster_jobs_and_make_targets_exist() -> None:
    from persona_pipeline.definitions import defs

    text = "\n".join(block.text for block in BLOCKS)
    assert set(re.findall(r"dagster job execute .*?-j (\w+)", text)) <= set(defs.get_repository_def().job_names)
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    assert set(re.findall(r"^ *make ([\w-]+)", text, re.MULTILINE)) <= set(re.findall(r"^([\w-]+):", makefile, re.M))


def test_variables_are_read_somewhere() -> None:
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("persona_pipeline", "docs/examples")
        for path in (PROJECT / folder).rglob("*.py")
    )
    fields = [*Settings.model_fields, *OrchestrationSettings.model_fields]
    known = {f"PERSONA_{name.upper()}" for name in fields} | set(re.findall(r"\"(PERSONA_[A-Z_]+)\"", code))
    known |= set(re.findall(r"PERSONA_[A-Z_]+", (PROJECT / "deploy" / "dagster.yaml").read_text(encoding="utf-8")))
    for page, text in TEXTS.items():
        named = {name for name in re.findall(r"\bPERSONA_[A-Z][A-Z0-9_]*", text) if not name.startswith(VARIABLE)}
        assert named - known == set(), page


def test_benchmarks_that_give_figures_are_there() -> None:
    named = {name for text in TEXTS.values() for name in re.findall(r"benchmarks[/.](\w+)", text)}
    assert {name for name in named if not [*(PROJECT / "benchmarks").glob(f"{name}*")]} == set()


def test_json_is_json_and_python_compiles() -> None:
    for block in blocks("json"):
        json.loads(block.text)
    for block in blocks("python"):
        compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def own_assert_type() -> type[Assert]:
    names: dict[str, type[Assert]] = {}
    exec(next(block.text for block in blocks("python", "docs/reference/suites.md") if "(Assert)" in block.text), names)
    return names["MaxWords"]


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_yaml_is_what_it_shows(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = parse_document(block.text, str(block))
    data = document.data
    if isinstance(data, list):
        monkeypatch.setitem(registry.TYPES.loaded, "max_words", own_assert_type())
        suite = {"tests": [{"id": "t", "input": "?", "expected_output": {"total": 1}, "assert": data}]}
        assert len(load_suite(written(tmp_path, "t.yaml", json.dumps(suite))).tests[0].asserts) == len(data)
    elif "tests" in data:
        written(tmp_path, "cases/more.yaml", "- {id: a, input: a, criteria: a}")
        written(tmp_path, "cases/more.jsonl", '{"id": "b", "input": "b", "criteria": "b"}')
        assert load_suite(written(tmp_path, "t.yaml", block.text)).warnings == ()
    elif "targets" in data:
        written(tmp_path, "answers.jsonl", "")
        targets = load_targets(written(tmp_path, "targets.yaml", block.text), Grants(own=True, world=PROJECT))
        assert [targets.open(name).name for name in targets.names] == targets.names
    elif "anti_convergence" in data:
        written(tmp_path, "nudges/pam.yaml", block.text)
        assert Nudges.load(tmp_path).own
    elif "phrases" in data:
        lexicon = AgreementLexicon.load(written(tmp_path, "agreement.yaml", block.text))
        assert all(is_agreement(phrase, lexicon) for phrase in data["phrases"])
    elif "scenes" in data:
        assert load_scenes(written(tmp_path, "interviews/michael.yaml", block.text))
    elif "dimension" in data:
        validate_document(PropositionFile, document)
    elif "display_name" in data:
        validate_document(PersonaFile, document)
    elif "canon" in data:
        validate_document(CanonFile, document)
    elif "type" in data:
        world = getattr(pp, data["type"].removeprefix("persona_pipeline."))
        monkeypatch.setenv("LAB_DATABASE_URL", "sqlite:///lab.db")
        assert world.resolve_from_yaml(json.dumps(data["attributes"])).prefix == data["attributes"]["prefix"]
    elif "by_dimension" in data and "accepted_drops" not in data:
        assert load_world_file(written(tmp_path, "persona.yaml", block.text).parent).allowed_drops
    elif "accepted_drops" in data:
        written(tmp_path, "persona.yaml", block.text)
        assert load_world_file(tmp_path).options.keys() == {*OF_A_WORLD} - {"only_fail_on"}
    elif "guardrails" in data:
        module, _, name = data["guardrails"][0]["litellm_params"]["guardrail"].rpartition(".")
        assert f"class {name}(" in (PROJECT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    elif "model_list" in data:
        assert data["model_list"][0]["litellm_params"]["extra_headers"] == {"X-Persona-Agent": "michael"}
    elif "load_from" in data:
        shipped = parse_document((PROJECT / "deploy" / "workspace.yaml").read_text(encoding="utf-8"), "workspace.yaml")
        shipped.data["load_from"][0]["grpc_server"]["host"] = "127.0.0.1"
        assert data == shipped.data
    elif "jobs" in data:
        actionlint = shutil.which("actionlint", path=str(Path(sys.executable).parent))
        if actionlint is None:
            pytest.skip("no actionlint on this machine")
        command = [actionlint, "-shellcheck=", "-pyflakes=", str(written(tmp_path, "workflow.yml", block.text))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        assert block.page == "docs/reference/reports.md" and "repos" in data, (
            "say here how this kind of file is checked"
        )


def test_the_first_suite_ends_as_shown(tmp_path: Path) -> None:
    page = "docs/how-to/suites.md"
    suite = load_suite(written(tmp_path, "greeting.eval.yaml", blocks("yaml", page)[0].text))
    shown, explained = (block.text.splitlines() for block in blocks("", page))
    answers = read_responses(json.loads(blocks("json", page)[0].text))
    result = run_suite(suite, responses=answers)
    assert [*map(result_line, result.tests), summary_line(result)] == shown
    text = template_text("suite_explained", {"tests": explain(suite, suite.tests[:1])})
    assert text.replace(str(tmp_path), "...").splitlines() == explained


def test_an_assert_type_of_your_own_grades(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.TYPES.loaded, "max_words", own_assert_type())
    text = "tests: [{id: t, input: '?', assert: [{type: max-words, value: 2}]}]"
    suite = load_suite(written(tmp_path, "words.eval.yaml", text))
    assert run_suite(suite, responses=read_responses({"t": "two words"})).exit_code == 0
    assert run_suite(suite, responses=read_responses({"t": "three words now"})).exit_code == 1


def test_the_tool_handler_is_the_one_of_the_example() -> None:
    handler = next(
        block.text for block in blocks("python", "docs/how-to/corrections.md") if "def send_message" in block.text
    )
    example = (PROJECT / "docs/examples/corrections_gate.py").read_text(encoding="utf-8")
    lines = iter(example.splitlines())
    assert all(line in lines for line in handler.splitlines())


def test_every_field_of_an_assert_is_described() -> None:
    types = [model for name in registry.BUILT_IN if (model := registry.find_type(name))]
    fields = {field.alias or key for model in types for key, field in model.model_fields.items()}
    assert ({*registry.BUILT_IN} | fields) - code_words("docs/reference/suites.md") == set()


FIELDS = [
    (
        "docs/reference/suites.md",
        (SuiteFields, suite_tests.TestFields, ExecutionFields, WorkspaceFields, HookFields),
    ),
    ("docs/reference/running-suites.md", (TrialsFields,)),
    ("docs/reference/running-suites.md", tuple(model for name in TARGETS.names() if (model := find_provider(name)))),
    ("docs/reference/corrections.md", (CorrectionSettings,)),
    ("docs/explanation/guard.md", (Label,)),
    ("docs/reference/comparing.md", (InterviewFile, SceneFields)),
    ("docs/how-to/facts.md", (CanonFact,)),
    ("docs/reference/component.md", (pp.PersonaWorld, MessagesFrom)),
    ("docs/reference/propositions.md", (PropositionFile, PropositionEntry, CatchphraseEntry)),
]


def test_every_key_of_a_file_is_described() -> None:
    for page, models in FIELDS:
        # The judge's target is accepted, and without effect.
        known = code_words(page) | {"judge_target"}
        keys = {
            (page, model.__name__, field.alias or key) for model in models for key, field in model.model_fields.items()
        }
        assert {key for key in keys if key[-1] not in known} == set()


def test_every_command_is_named() -> None:
    # The site has a page of all options, written from the code; tests/test_docs_site.py checks it.
    known = code_words("docs/reference/command-line.md")
    assert [name for name, command in cli_commands() if not {*name.split()} <= known or not command.help] == []


def test_every_variable_is_described_with_its_default() -> None:
    rows = re.findall(r"^\| (`[A-Z_`, ]+) \| (.*?) \|", TEXTS["docs/reference/command-line.md"], re.MULTILINE)
    told: dict[str, str] = {}
    for names, defaults in rows:
        variables = re.findall(r"`(\w+)`", names)
        values = [value.strip(" `") for value in defaults.split(", ")]
        told |= dict(zip(variables, values * len(variables) if len(values) == 1 else values, strict=False))
    fields = {**Settings.model_fields, **OrchestrationSettings.model_fields}
    assert {f"PERSONA_{name.upper()}" for name in fields} - told.keys() == set()
    for name, field in fields.items():
        value = told[f"PERSONA_{name.upper()}"]
        if isinstance(field.default, bool):
            assert value == str(field.default).lower(), name
        elif isinstance(field.default, int | float):
            assert float(value) == field.default, name
        elif field.default:
            assert value == field.default, name


def test_every_key_of_a_message_is_described() -> None:
    # A run's id is for runtimes that keep one.
    assert set(files.FIELDS) - {"run_id"} - code_words("docs/tutorial/getting-started.md") == set()


class Newcomer:
    """Somebody who types what docs/tutorial/getting-started.md says, with a stand-in for the model."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        monkeypatch.chdir(folder)

    def types(self, line: str) -> Result | None:
        get_settings.cache_clear()
        words = shlex.split(line)
        if words[0] == "cd":
            self.monkeypatch.chdir(words[1])
        elif words[0] == "persona-pipeline":
            return CliRunner().invoke(app, words[1:])
        elif words[:2] == ["python", "export.py"]:
            command = [sys.executable, self.folder / "export.py"]
            with (self.folder / "chat.jsonl").open(encoding="utf-8") as log:
                done = subprocess.run(command, stdin=log, capture_output=True, text=True, timeout=PATIENCE, check=True)
            Path(words[-1]).write_text(done.stdout, encoding="utf-8")
        else:
            assert words[0] in ("pip", "export", "git"), line
        return None


def in_character(call: Call) -> Reply:
    """Judge an agent of the template as in character: it has its habits and none of the bad ones."""
    bad = ("polite general phrases", "business jargon", "exaggerates")
    return message(json.dumps(verdicts(call.body, lambda claim: 1 if any(words in claim for words in bad) else 8)))


@pytest.mark.slow
def test_getting_started_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "docs/tutorial/getting-started.md"
    written(tmp_path, "export.py", blocks("python", page)[0].text)
    event = {"id": "e1", "sender": "Otto", "room": "team", "body": "21 degrees.", "time": "2026-03-05T09:10:00Z"}
    written(tmp_path, "chat.jsonl", json.dumps(event))
    newcomer = Newcomer(tmp_path, monkeypatch)
    codes: list[int] = []
    # An agent in character: of another window no baseline is taken.
    with MessagesServer(in_character) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
        for block in blocks("indented", page):
            for line in block.text.split("\n"):
                if line.strip() and (done := newcomer.types(line.strip())):
                    codes.append(done.exit_code)
                    print(line, done.output, done.exception)
                    if "evaluate --judge" in line:
                        paid, table = server.paid, done.stderr
            if "baseline" in block.text:
                # What CI does after step 6: the last command of the workflow, on a commit that has one before it.
                git(Path.cwd(), "init", "--quiet")
                for message in ("the world", "a pull request"):
                    git(Path.cwd(), "add", "-A")
                    git(Path.cwd(), "commit", "--quiet", "--allow-empty", "-m", message)
                again = newcomer.types(re.findall(r"- run: (.*)", blocks("yaml", page)[1].text)[-1])
                assert again is not None and again.exit_code == 0, again
                assert server.paid == paid
    #           init, validate, show, doctor, estimate, evaluate, baseline, evaluate
    assert codes[:-1] == [0, 0, 0, 0, 0, 3, 0] and codes[-1] in (0, 1)
    header = next(line.split() for line in table.splitlines() if line.startswith("agent "))
    assert blocks("", page)[0].text.split("\n")[0].split() == header
    assert (tmp_path / "world" / ".persona" / "report.html").is_file()


def test_a_new_world_has_the_settings_of_dagster_that_the_project_has() -> None:
    template = PROJECT / "persona_pipeline" / "world" / "template" / "dagster.yaml"
    own, project = (
        parse_document(path.read_text(encoding="utf-8"), path.name).data
        for path in (template, PROJECT / "dagster.yaml")
    )
    assert own == project


def test_the_readme_shows_the_table_that_the_demo_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = next(block.text for block in blocks("indented", "README.md") if "! michael" in block.text)
    monkeypatch.setenv("PERSONA_DATABASE_URL", "sqlite://")
    monkeypatch.setenv("PERSONA_MESSAGE_VERDICTS", "400")
    get_settings.cache_clear()
    done = in_process(PROJECT, monkeypatch, capsys)("evaluate")
    printed = [" ".join(line.split()) for line in done.stderr.splitlines()]
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    # Sentences may be shown without their ends.
    assert [line for line in lines if not any(one.startswith(line) for one in printed)] == []


def test_the_service_has_these_endpoints_and_outcomes(tmp_path: Path) -> None:
    (tmp_path / "personas").mkdir()
    world = World.open(tmp_path, f"sqlite:///{tmp_path}/store.db")
    service = create_app(world, RecordedBackend(tmp_path / "recordings"))
    world.store.close()
    routes = {f"{method.upper()} {path}" for path, methods in service.openapi()["paths"].items() for method in methods}
    text = TEXTS["docs/reference/corrections.md"]
    assert set(re.findall(r"^\| `((?:GET|POST|PUT) [^`]+)`", text, re.MULTILINE)) == routes | {"GET /openapi.json"}
    assert {outcome.value for outcome in Outcome} <= code_words("docs/reference/corrections.md")


def test_every_reason_for_no_score_is_described() -> None:
    from persona_pipeline.corrections import judgment
    from persona_pipeline.judging.verdict import Unscored

    own = {value for name, value in inspect.getmembers(judgment) if name.isupper() and isinstance(value, str)}
    own -= {"propositions"}  # the name of a folder
    # The gate has no budget, a message is always there, and its claims bring neither quotes nor canaries.
    possible = own | {reason.value for reason in Unscored} - {"budget", "no_evidence", "unsupported", "compromised"}
    assert possible - code_words("docs/reference/corrections.md") == set()
    assert {reason.value for reason in Unscored} - code_words("docs/explanation/judge.md") == set()
