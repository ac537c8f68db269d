"""The documentation says what is so: its links, commands, variables, examples and tables against the code."""

import ast
import inspect
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from persona_pipeline.cli.app import app
from persona_pipeline.corrections import Outcome
from persona_pipeline.corrections.nudges import Nudges
from persona_pipeline.corrections.service.app import create_app
from persona_pipeline.defs.settings import OrchestrationSettings
from persona_pipeline.documents import parse_document, validate_document
from persona_pipeline.judging.recorded import RecordedBackend
from persona_pipeline.propositions.schema import CatchphraseEntry, PropositionEntry, PropositionFile
from persona_pipeline.reporting.suites.table import explanation_lines, run_lines
from persona_pipeline.settings import Settings
from persona_pipeline.suites import Assert, load_suite, read_responses, registry, run_suite, target_proxy
from persona_pipeline.suites.explain import explain
from persona_pipeline.suites.loading import tests as suite_tests
from persona_pipeline.suites.loading.execution import ExecutionFields, HookFields, TrialsFields, WorkspaceFields
from persona_pipeline.suites.loading.suite import SuiteFields
from persona_pipeline.suites.targets import config, load_targets
from persona_pipeline.world import CorrectionSettings, World
from persona_pipeline.world.personas import PersonaFile

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


@pytest.mark.parametrize("page", TEXTS)
def test_links_lead_somewhere(page: str) -> None:
    broken = []
    for target in _LINK.findall(re.sub(r"`[^`]*`", "", prose_of(page))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (PROJECT / page).parent / path if path else PROJECT / page
        headings = place.read_text(encoding="utf-8") if anchor and place.is_file() else ""
        if not place.exists() or (anchor and anchor not in map(slug, re.findall(r"^#+ (.*)$", headings, re.MULTILINE))):
            broken.append(target)
    assert broken == []


def test_every_page_is_in_the_index() -> None:
    index = _LINK.findall(prose_of("docs/README.md"))
    pages = [path.name for path in (PROJECT / "docs").iterdir() if path.name != "README.md"]
    assert set(pages) - set(index) == set()


def commands() -> Iterator[tuple[str, str, bool]]:
    """Page, command line without its comment, and whether it is complete (inline code may leave arguments out)."""
    for block in [block for language in ("", "sh", "indented") for block in blocks(language)]:
        for line in block.text.replace("\\\n", " ").splitlines():
            text = re.split(r"\s{2,}|\s#", line.strip())[0]
            if re.match(r"(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?persona-pipeline ", text):
                yield block.page, text[text.index("persona-pipeline") :], True
    for page in TEXTS:
        for span in re.findall(r"`(persona-pipeline [^`]+)`", prose_of(page)):
            yield page, span, False


COMMANDS = list(dict.fromkeys(commands()))


def test_there_are_commands_to_check() -> None:
    named = {text.split()[1] for _, text, _ in COMMANDS}
    assert {"evaluate", "baseline", "report", "ingest", "suite", "corrections", "propositions", "doctor"} <= named


@pytest.mark.parametrize(("page", "text", "complete"), COMMANDS, ids=lambda value: str(value).replace(" ", "_"))
def test_a_command_is_one_that_there_is(page: str, text: str, complete: bool) -> None:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)[1:]
    words = words[: next((place for place, word in enumerate(words) if set(word) <= set("|&;<>()")), len(words))]
    command = typer.main.get_command(app)
    while words and (known := getattr(command, "commands", None)):
        assert words[0] in known, f"{page}: there is no command {words[0]!r}"
        command = known[words.pop(0)]
    if hasattr(command, "commands"):
        assert not complete, f"{page}: {text} is a group of commands"
        return
    try:
        # Parses and converts every option and argument, and runs nothing.
        command.make_context("persona-pipeline", words)
    except Exception as error:
        if complete or type(error).__name__ != "MissingParameter":
            pytest.fail(f"{page}: {text}: {getattr(error, 'message', error)}")


def test_dagster_jobs_and_make_targets_exist() -> None:
    from persona_pipeline.defs.jobs import JOBS

    text = "\n".join(block.text for block in BLOCKS)
    assert set(re.findall(r"dagster job execute .*?-j (\w+)", text)) <= {job.name for job in JOBS}
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    assert set(re.findall(r"^ *make ([\w-]+)", text, re.MULTILINE)) <= set(re.findall(r"^([\w-]+):", makefile, re.M))


def test_variables_are_read_somewhere() -> None:
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("persona_pipeline", "examples")
        for path in (PROJECT / folder).rglob("*.py")
    )
    fields = [*Settings.model_fields, *OrchestrationSettings.model_fields]
    known = {f"PERSONA_{name.upper()}" for name in fields} | set(re.findall(r"\"(PERSONA_[A-Z_]+)\"", code))
    known |= {f"PERSONA_{name}" for name in (target_proxy._URL, target_proxy._TOKEN)}
    for page, text in TEXTS.items():
        assert set(re.findall(r"\bPERSONA_[A-Z][A-Z0-9_]*", text)) - known == set(), page


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def own_assert_type() -> type[Assert]:
    names: dict[str, type[Assert]] = {}
    exec(next(block.text for block in blocks("python", "docs/suites.md") if "(Assert)" in block.text), names)
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
        monkeypatch.setitem(registry._TYPES, "max_words", own_assert_type())
        suite = {"tests": [{"id": "t", "input": "?", "expected_output": {"total": 1}, "assert": data}]}
        assert len(load_suite(written(tmp_path, "t.yaml", json.dumps(suite))).tests[0].asserts) == len(data)
    elif "tests" in data:
        written(tmp_path, "cases/more.yaml", "- {id: a, input: a, criteria: a}")
        written(tmp_path, "cases/more.jsonl", '{"id": "b", "input": "b", "criteria": "b"}')
        assert load_suite(written(tmp_path, "t.yaml", block.text)).warnings == ()
    elif "targets" in data:
        monkeypatch.setenv("PERSONA_ROOT", str(PROJECT))
        written(tmp_path, "answers.jsonl", "")
        targets = load_targets(written(tmp_path, "targets.yaml", block.text))
        assert [targets.open(name).name for name in targets.names] == targets.names
    elif "anti_convergence" in data:
        written(tmp_path, "nudges/pam.yaml", block.text)
        assert Nudges.load(tmp_path).texts["pam"]
    elif "dimension" in data:
        validate_document(PropositionFile, document)
    elif "display_name" in data:
        validate_document(PersonaFile, document)
    else:
        assert block.page == "docs/reports.md" and "repos" in data, "say here how this kind of file is checked"


def test_the_first_suite_ends_as_shown(tmp_path: Path) -> None:
    page = "docs/suites.md"
    suite = load_suite(written(tmp_path, "greeting.eval.yaml", blocks("yaml", page)[0].text))
    shown, explained = (block.text.splitlines() for block in blocks("", page))
    answers = read_responses(json.loads(blocks("json", page)[0].text))
    assert list(run_lines(run_suite(suite, responses=answers))) == shown
    lines = [line.replace(str(tmp_path), "...") for line in explanation_lines(explain(suite, suite.tests[:1]))]
    assert lines == explained


def test_an_assert_type_of_your_own_grades(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._TYPES, "max_words", own_assert_type())
    text = "tests: [{id: t, input: '?', assert: [{type: max-words, value: 2}]}]"
    suite = load_suite(written(tmp_path, "words.eval.yaml", text))
    assert run_suite(suite, responses=read_responses({"t": "two words"})).exit_code == 0
    assert run_suite(suite, responses=read_responses({"t": "three words now"})).exit_code == 1


def test_the_tool_handler_is_the_one_of_the_example() -> None:
    handler = next(block.text for block in blocks("python", "docs/corrections.md") if "def send_message" in block.text)
    example = (PROJECT / "examples" / "corrections_gate.py").read_text(encoding="utf-8")
    lines = iter(example.splitlines())
    assert all(line in lines for line in handler.splitlines())


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_every_field_of_an_assert_is_described(name: str) -> None:
    model = registry.find_type(name)
    assert model is not None
    fields = {field.alias or key for key, field in model.model_fields.items()}
    assert ({name} | fields) - code_words("docs/suites.md") == set()


FIELDS = [
    (
        "docs/suites.md",
        (SuiteFields, suite_tests.TestFields, ExecutionFields, TrialsFields, WorkspaceFields, HookFields),
    ),
    ("docs/suites.md", tuple(config._providers().values())),
    ("docs/corrections.md", (CorrectionSettings,)),
    ("docs/propositions.md", (PropositionFile, PropositionEntry, CatchphraseEntry)),
]


@pytest.mark.parametrize(("page", "models"), FIELDS)
def test_every_key_of_a_file_is_described(page: str, models: tuple[type, ...]) -> None:
    # Accepted, and without effect.
    known = code_words(page) | {"judge_target", "delayMs"}
    for model in models:
        missing = {field.alias or key for key, field in model.model_fields.items()} - known
        assert missing == set(), model.__name__


@pytest.mark.parametrize(
    ("page", "command"), [("docs/suites.md", "run"), ("docs/suites.md", "compare"), ("docs/corrections.md", "serve")]
)
def test_every_option_is_described(page: str, command: str) -> None:
    tree = typer.main.get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
    found = next(group.commands[command] for group in (tree["suite"], tree["corrections"]) if command in group.commands)
    options = {name for parameter in found.params for name in parameter.opts if name.startswith("--")}
    assert options - code_words(page) - {"--help"} == set()


def test_the_service_has_these_endpoints_and_outcomes(tmp_path: Path) -> None:
    (tmp_path / "personas").mkdir()
    world = World.open(tmp_path, f"sqlite:///{tmp_path}/store.db")
    service = create_app(world, RecordedBackend(tmp_path / "recordings"))
    world.store.close()
    routes = {f"{method.upper()} {path}" for path, methods in service.openapi()["paths"].items() for method in methods}
    text = TEXTS["docs/corrections.md"]
    assert set(re.findall(r"^\| `((?:GET|POST|PUT) [^`]+)`", text, re.MULTILINE)) == routes | {"GET /openapi.json"}
    assert {outcome.value for outcome in Outcome} <= code_words("docs/corrections.md")


def test_every_reason_for_no_score_is_described() -> None:
    from persona_pipeline.corrections import judgment
    from persona_pipeline.judging.verdict import Unscored

    own = {value for name, value in inspect.getmembers(judgment) if name.isupper() and isinstance(value, str)}
    # The gate has no budget, and a message is always there.
    possible = own | {reason.value for reason in Unscored} - {"budget", "no_evidence"}
    assert possible - code_words("docs/corrections.md") == set()
    assert {reason.value for reason in Unscored} - code_words("docs/judge.md") == set()
