"""The checks of ``validate``: each kind of file by its place in the world."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from persona_pipeline.base.documents.yaml import load_document
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.base.options import FAIL_LISTS
from persona_pipeline.base.settings import get_settings
from persona_pipeline.base.text import some
from persona_pipeline.corrections.nudges import NUDGES, Nudges
from persona_pipeline.scoring.facts.known import parse_canon
from persona_pipeline.scoring.text.agreement import LEXICONS, world_lexicon
from persona_pipeline.world.cards.files import CARDS, CardFormat, read_card
from persona_pipeline.world.changes import FOLDERS, ask_git
from persona_pipeline.world.messages.files import ENDINGS, FIELDS, parse_messages
from persona_pipeline.world.models import Message
from persona_pipeline.world.names import alias_problems, read_names
from persona_pipeline.world.personas import CANON, DRAFT, PERSONAS, load_persona, parse_persona, undescribed, yaml_stems
from persona_pipeline.world.propositions.loading import find_proposition_set, load_proposition_file
from persona_pipeline.world.propositions.models import (
    ALL_DIMENSIONS,
    DIMENSIONS,
    TEMPLATE_VARIABLES,
    filled_variables,
    spaced_variables,
    template_variables,
)
from persona_pipeline.world.settings import WORLD_FILE, load_world_file
from persona_pipeline.world.speakers import BASELINES, count_speakers, match_names, missing_agent_problems

if TYPE_CHECKING:
    from persona_pipeline.judging.recordings.replay import Recording

MOST_DIFFERENCES = 3
# Folders whose files are checked one by one.
_CHECKED = (PERSONAS, CARDS, "propositions", "messages", "recordings", "labels", BASELINES, "suites", "interviews")


@dataclass
class Checked:
    """The number of files read, their problems and warnings, and the valid messages by id and recordings, with their files."""

    files: int = 0
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    messages: dict[str, tuple[Message, Path]] = field(default_factory=dict)
    recordings: "dict[Path, list[Recording]]" = field(default_factory=dict)

    def run(self, check: Callable[[], object]) -> None:
        """Count a file and keep the problems that its check raises."""
        self.files += 1
        try:
            check()
        except ConfigError as error:
            self.problems += error.problems


def check_world(root: Path, *, require_signed: bool = False) -> Checked:
    """Check a world with every agent's claims; ``require_signed``: baselines that cannot be retaken are problems."""
    from persona_pipeline.guard.anchors import FILE as ANCHORS_FILE
    from persona_pipeline.guard.anchors import load_anchors

    checked = check_paths(path for name in _CHECKED if (path := root / name).exists())
    for folder, check in ((NUDGES, Nudges.load), (LEXICONS, world_lexicon)):
        if (root / folder).is_dir():
            checked.run(lambda check=check: check(root))
    if (anchors := root / BASELINES / ANCHORS_FILE).is_file():
        checked.run(lambda: load_anchors(anchors))
    if (root / WORLD_FILE).is_file():
        checked.run(lambda: _check_settings(root))
    checked.problems += [*_links(root), *_tracked(root), *missing_agent_problems(root)]
    names, said = read_names(root), dict[str, int]()
    checked.problems += dict.fromkeys(problem for found in alias_problems(names).values() for problem in found)
    count_speakers((message for message, _ in checked.messages.values()), names, said)
    people: Sequence[str] = ()
    with suppress(ConfigError):
        people = load_world_file(root).people
    checked.warnings += [Problem(line) for line in match_names(said, names, people).lines()]
    claims: set[tuple[str, str, str]] = set()
    for agent_id in yaml_stems(root / PERSONAS):
        for dimension in ALL_DIMENSIONS:
            try:
                found = find_proposition_set(root / "propositions", dimension, agent_id)
            except ConfigError as error:
                checked.problems += error.problems
                continue
            claims |= {(agent_id, dimension, item.id) for item in (found.propositions if found else ())}
    checked.warnings += _stray_recordings(checked, claims)
    _labels_together(root, checked)
    _baselines_again(root, checked, require_signed)
    return checked


def _check_settings(root: Path) -> None:
    """Check the world's settings, and that the agents, claims and dimensions they name exist."""
    from persona_pipeline.guard.gate import FAILURES
    from persona_pipeline.judging.providers.base import PROVIDERS, RECORDED
    from persona_pipeline.world.models import parse_window

    document, file = load_document(root / WORLD_FILE), load_world_file(root)
    agents = yaml_stems(root / PERSONAS)
    named: list[tuple[tuple[str | int, ...], str | None, Collection[str]]] = [
        (("judge", "provider"), file.judge.provider, (RECORDED, *PROVIDERS.names())),
        *((("leave_out", place), name, agents) for place, name in enumerate(file.leave_out)),
        *(
            ((option, place), name, FAILURES)
            for option in FAIL_LISTS
            for place, name in enumerate(file.options.get(option, ()))
        ),
    ]
    for place, drop in enumerate(file.accepted_drops):
        here = ("accepted_drops", place)
        named += [((*here, "agent"), drop.agent, agents), ((*here, "dimension"), drop.dimension, ALL_DIMENSIONS)]
        if drop.claim is not None and drop.agent in agents and drop.dimension in ALL_DIMENSIONS:
            found = find_proposition_set(root / "propositions", drop.dimension, drop.agent)
            named.append(((*here, "claim"), drop.claim, [item.id for item in (found.propositions if found else ())]))
    problems = [
        document.problem(at, f"{name!r} is unknown{did_you_mean(name, known) or '; use ' + ', '.join(known)}")
        for at, name, known in named
        if name is not None and name not in known
    ]
    window = file.options.get("window", "all")
    if window != "all":
        try:
            parse_window(window)
        except ConfigError as error:
            problems.append(document.problem(("window",), str(error)))
    if problems:
        raise ConfigError(problems)


def _links(root: Path) -> Iterator[Problem]:
    """Yield links that lead out of the world, as their targets are not part of the commit."""
    top = root.resolve()
    for name in (*FOLDERS, "targets.yaml"):
        place = root / name
        below = (Path(at, entry) for at, folders, files in os.walk(place) for entry in (*folders, *files))
        for path in (place, *below):
            if path.is_symlink() and not path.resolve().is_relative_to(top):
                yield Problem("is a link that leads out of the world; replace it with the file", str(path))


def _tracked(root: Path) -> Iterator[Problem]:
    """Yield a store that git tracks: it holds runs of another machine."""
    try:
        listed = ask_git(root, "ls-files", "-z", "--", ".persona")
    except ConfigError:
        return
    if found := [name for name in listed.decode("utf-8", "replace").split("\0") if name]:
        text = "is tracked by git, and stored runs are trusted; run `git rm -r --cached .persona` and ignore it"
        yield Problem(text, str(root / found[0]))


def _baselines_again(root: Path, checked: Checked, require_signed: bool) -> None:
    """Compare golden files with the recordings they name, if all files load."""
    from persona_pipeline.evaluation.folder import retake_baselines

    settings = get_settings()
    if require_signed and settings.signing_secret is None:
        checked.problems.append(Problem("--require-signed needs PERSONA_RECORDINGS_SECRET, which signs recordings"))
    if checked.problems:
        return
    unknown: dict[str, list[str]] = {}
    for item in retake_baselines(root, settings):
        checked.problems += [
            Problem(f"says {text}; take it again with `persona-pipeline baseline`", str(item.path))
            for text in item.wrong[:MOST_DIFFERENCES]
        ]
        for reason, names in item.unknown.items():
            unknown.setdefault(reason, []).append(f"{item.path.stem} ({', '.join(names)})")
    (checked.problems if require_signed else checked.warnings).extend(
        Problem(f"{len(names)} cannot be taken again, {reason}: {some(names, 5, '; ')}", str(root / BASELINES))
        for reason, names in unknown.items()
    )


def _labels_together(root: Path, checked: Checked) -> None:
    """Check labels across files."""
    from persona_pipeline.guard.labels.files import LABELS, load_labels

    try:
        load_labels(root / LABELS)
    except ConfigError as error:
        checked.problems += error.problems


def _stray_recordings(checked: Checked, claims: set[tuple[str, str, str]]) -> Iterator[Problem]:
    """Yield recordings of unknown claims."""
    from persona_pipeline.judging.verdict import PROPOSITION

    for path, recordings in checked.recordings.items():
        names = [
            f"{item.agent_id}/{item.dimension}/{item.proposition_id}"
            for item in recordings
            if item.kind == PROPOSITION and (item.agent_id, item.dimension, item.proposition_id) not in claims
        ]
        if names:
            few = some(sorted(set(names)), 5)
            said = f"{len(names)} recordings of claims that no agent has ({few}); delete them"
            yield Problem(said, str(path))


def check_paths(paths: Iterable[Path]) -> Checked:
    """Check files, and all files of folders."""
    checked = Checked()
    for path in paths:
        files = sorted(item for item in path.rglob("*") if item.is_file()) if path.is_dir() else [path]
        for file in files:
            _check_file(file, checked)
    return checked


def _check_file(path: Path, checked: Checked) -> None:
    from persona_pipeline.guard.baselines.golden import load_baseline
    from persona_pipeline.guard.known_drift import DRIFTS, load_drift
    from persona_pipeline.guard.labels.files import MESSAGES, VOICE, Label, load_label_files
    from persona_pipeline.guard.labels.messages import MessageLabel
    from persona_pipeline.lab.scenes import INTERVIEWS, load_scenes

    if not path.exists():
        checked.problems.append(Problem("does not exist; check the path", str(path)))
    if not path.exists() or path.name.startswith("."):
        return
    place, suffix = path.resolve(), path.suffix.lower()
    parent, above = place.parent.name, place.parent.parent.name
    parents, is_yaml = {folder.name for folder in place.parents}, suffix in (".yaml", ".yml")
    kind = MessageLabel if path.stem in (MESSAGES, VOICE) else Label
    # The first row that applies checks the file.
    checks: tuple[tuple[bool, Callable[[], object]], ...] = (
        (path.name.endswith((".eval.yaml", ".eval.yml")), lambda: _suite(path, checked)),
        (is_yaml and parent == PERSONAS, lambda: _persona(path, checked)),
        (is_yaml and "propositions" in parents, lambda: _propositions(path, checked)),
        (is_yaml and parent == INTERVIEWS, lambda: load_scenes(path)),
        (parent == CARDS and suffix[1:] in list(CardFormat), lambda: read_card(path)),
        (suffix == ".json" and parent == BASELINES, lambda: load_baseline(path)),
        (suffix == ".json" and (above, parent) == (BASELINES, DRIFTS), lambda: load_drift(path)),
        (suffix == ".json" and above == BASELINES, lambda: _interview_baseline(place)),
        (suffix == ".jsonl" and "recordings" in parents, lambda: _recordings(path, checked)),
        (suffix == ".jsonl" and parent == "labels", lambda: load_label_files(kind, [path])),
        (suffix in ENDINGS and "messages" in parents, lambda: _messages(path, checked)),
    )
    if check := next((check for applies, check in checks if applies), None):
        checked.run(check)


def _interview_baseline(place: Path) -> None:
    from persona_pipeline.lab.interview import find_interview_baseline

    find_interview_baseline(place.parents[2], place.stem)


def _persona(path: Path, checked: Checked) -> None:
    if path.stem.endswith(DRAFT):
        name = path.stem.removesuffix(DRAFT)
        said = f"is an unused draft; correct it and rename it to {name}.yaml"
        checked.warnings.append(Problem(said, str(path)))
        parse_persona(path, name)
    elif path.stem.endswith(CANON):
        parse_canon(path)
    else:
        persona = load_persona(path.resolve().parent.parent, path.stem)
        # Commands that pay a judge refuse it.
        for problem in undescribed([persona]).get(path.stem, ()):
            checked.warnings.append(load_document(path).problem(("persona",), problem.message))


def _recordings(path: Path, checked: Checked) -> None:
    from persona_pipeline.judging.recordings.replay import load_recording_file

    checked.recordings[path] = load_recording_file(path, get_settings().signing_secret)


def _messages(path: Path, checked: Checked) -> None:
    parsed = parse_messages(path)
    checked.problems += parsed.problems
    odd: dict[str, int] = {}
    for message in parsed.messages:
        first, where = checked.messages.setdefault(message.id, (message, path))
        if first != message:
            said = f"id {message.id!r} is taken in {where}; give this message its own"
            checked.problems.append(Problem(said, str(path), parsed.lines[message.id]))
        for key in message.extras:
            odd.setdefault(key, parsed.lines[message.id])
    for key, line in odd.items():
        if near := did_you_mean(key, FIELDS):
            checked.warnings.append(
                Problem(f"key {key[:40]!r} is kept as an extra and not judged{near}", str(path), line)
            )


def _propositions(path: Path, checked: Checked) -> None:
    loaded = load_proposition_file(path)
    content = loaded.content
    # Without a level an agent's file takes that of the default file, which may be action.
    level = content.level if "level" in content.model_fields_set or path.stem == "_default" else "action"
    filled = filled_variables(content.dimension, level)
    rename = f"move it to {path.stem.removesuffix(DRAFT)}.yaml and " if path.stem.endswith(DRAFT) else ""
    for index, entry in enumerate(content.propositions):
        if entry.draft or path.stem.endswith(DRAFT):
            said = f"{entry.id} is a draft and not judged; review it, then {rename}remove its draft mark"
            checked.warnings.append(loaded.document.problem(("propositions", index, "id"), said))
        for message in _odd_variables(entry.claim, content.dimension, filled):
            checked.warnings.append(loaded.document.problem(("propositions", index, "claim"), message))


def _odd_variables(claim: str, dimension: str, filled: Sequence[str]) -> Iterator[str]:
    for name in template_variables(claim):
        if name not in TEMPLATE_VARIABLES:
            yield f"{{{{{name}}}}} is unknown; the variables are {', '.join(TEMPLATE_VARIABLES)}"
        elif name not in filled and DIMENSIONS[dimension].by_action:
            yield f"{{{{{name}}}}} is filled in by the action gate and with level: action, not by this evaluation"
        elif name not in filled:
            yield f"{{{{{name}}}}} is not filled in for {dimension}; it has {', '.join(filled)}"
    for text in spaced_variables(claim):
        yield f"{text} is not filled in; write it with double braces and without spaces: {{{{{text.strip('{} ')}}}}}"


def _suite(path: Path, checked: Checked) -> None:
    from persona_pipeline.suites.running.opening import load_suite, suite_roots

    suite = load_suite(path, suite_roots(path, get_settings()))
    checked.warnings += suite.warnings
    checked.problems += suite.missing
