"""Options of an evaluation, declared once for every surface, and registries of classes by the names that files use."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Annotated, Any, Generic, Self, TypedDict, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, create_model, model_validator
from pydantic.fields import FieldInfo

from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.base.text import names_in

WINDOW = "7d"
REGRESSION_DELTA = 1.0
PROPOSITION_DELTA = 3.0
# Options that also hold for one dimension alone, and the words of a headline where one lets more pass than usual.
RULES: Mapping[str, str] = {
    "regression_delta": "{value:g} points allowed",
    "proposition_delta": "{value:g} points a claim allowed",
    "undecided_delta": "{value:g} points may be chance",
}
# Windows of a baseline that is asked for; the settings of an evaluation mean one.
BASELINE_WINDOWS = 4

# Words in texts for values that are not texts.
EVERYTHING, NOTHING = "all", "none"
FAIL_LISTS = ("fail_on", "only_fail_on")
_LISTS = ("agents", "dimensions", *FAIL_LISTS)
_MOMENTS = ("as_of", "since")
# What Dagster's run config and settings have said for None since before they could say it.
_ONCE_NONE: Mapping[str, tuple[Any, ...]] = {
    "max_usd": (0, 0.0),
    "grouping": (0,),
    "agents": ([],),
    "dimensions": ([],),
}


def _day(value: Any) -> Any:
    try:
        return date.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError("is no day such as 2026-07-01") from None


Day = Annotated[date, BeforeValidator(_day)]


class AcceptedDrop(BaseModel, frozen=True, extra="forbid"):
    """A known drop that a person accepts until a day. Until then it is reported and fails nothing."""

    agent: str = Field(description="Whose drop.")
    dimension: str = Field(description="In which dimension; without a claim all drops in it.")
    claim: str | None = Field(default=None, description="Only this claim of the dimension.")
    until: Day = Field(description="The last day it is accepted, such as 2026-07-01.")
    why: str = Field(min_length=1, description="Why it is meant, for whoever reads the report.")


class EvaluationRequest(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """What to evaluate, who judges, and when it fails. Options that are not given come from the world's settings or defaults.

    Raises:
        ConfigError: a value cannot be; all such are named.
    """

    agents: Sequence[str] | None = Field(
        default=None,
        description="Agents to evaluate, with commas between them; by default `all` that have a persona file.",
    )
    dimensions: Sequence[str] | None = Field(
        default=None,
        description="Dimensions to score, with commas between them; by default `all` that have claims. A named one must have some.",
    )
    window: str = Field(
        default=WINDOW, description="How much is evaluated: a length of time such as `7d` or `12h`, or `all`."
    )
    as_of: datetime | None = Field(
        default=None,
        description="Where the window ends, such as `2026-06-14T23:59:59Z`; by default at the newest message.",
    )
    since: datetime | None = Field(default=None, description="Where the window begins instead, that moment left out.")
    judge: str | None = Field(
        default=None,
        description="Who judges: `recorded` replays recordings; `anthropic`, `openai`, `gemini`, `ollama` and others ask a model "
        "([providers.md](providers.md)). By default `PERSONA_JUDGE`, else `recorded`.",
    )
    samples: int = Field(default=1, ge=1, le=50, description="How often each claim is judged.")
    grouping: int | None = Field(
        default=None,
        ge=1,
        description="Claims of one transcript in one call of a live judge; by default `PERSONA_JUDGE_GROUPING`, else 1.",
    )
    record: bool = Field(
        default=False,
        description="Write the verdicts of a live judge to `recordings/`, and what failed "
        "([judge.md](../explanation/judge.md#recorded)).",
    )
    fresh: bool = Field(default=False, description="Ask a live judge again where recordings or the store answer.")
    max_usd: float | None = Field(
        default=None, ge=0, description="US dollars a live judge may cost; what that stops is unscored."
    )
    confirm: bool = Field(
        default=True,
        description="With a live judge: judge again what dropped before it counts; a replay takes what was recorded then.",
    )
    synthetic: bool = Field(
        default=False, description="With a live judge: generate conversations for agents with fewer than 10 messages."
    )
    facts: bool = Field(
        default=False,
        description="Ask what each agent said of itself, once a conversation, and warn of what contradicts what it said before "
        "([facts.md](../how-to/facts.md)).",
    )
    regression_delta: float = Field(
        default=REGRESSION_DELTA, ge=0, description="Points, 0-9, a dimension may drop below its baseline."
    )
    proposition_delta: float = Field(
        default=PROPOSITION_DELTA, ge=0, description="Points, 0-9, a claim may drop below its baseline."
    )
    undecided_delta: float | None = Field(
        default=None,
        ge=0,
        le=9,
        description="Points, 0-9, from which a dimension's drop that may be chance cannot be told "
        "([guard.md](../explanation/guard.md#three-verdicts)); by default `PERSONA_UNDECIDED_DELTA`, else 2.5.",
    )
    threshold: float | None = Field(
        default=None, ge=0, le=9, description="Overall score, 0-9, an agent must reach; by default none."
    )
    min_coverage: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Share, 0-1, of due judgments that must be scored; by default 0.95 with a live judge, and in a replay what was "
        "asked when the failures were recorded, else 1.0.",
    )
    fail_on: Sequence[str] | None = Field(
        default=None,
        description="Findings that fail the run as well, with commas between them: the warnings `moved`, `injection`, "
        "`unknown_speaker`, `clone`, `said_again`, `contradiction`, `voice_alarm` and `judge_changed`. "
        "It takes none away.",
    )
    only_fail_on: Sequence[str] | None = Field(
        default=None,
        description="Only these fail the run, with commas between them, or `none`: `regression`, `threshold`, `undecided` "
        "(includes `doubted`), `coverage`, `no_baseline`, `budget`, `calibration`, and those of `fail_on`. The headline says so.",
    )
    require_calibration: bool | None = Field(
        default=None,
        description="Fail until people labelled 20 messages or 50 judgments "
        "([how](../explanation/guard.md#measured-against-people)); by default as `PERSONA_REQUIRE_CALIBRATION` says, else off.",
    )
    against: str | None = Field(
        default=None,
        description="A commit whose baselines, labels and lexicons decide, such as `HEAD^1` of a pull request; "
        "files here that would make another verdict are named, and nothing stored is believed "
        "([reports.md](reports.md#a-pull-request-is-judged-by-its-base)).",
    )
    accept_baseline: bool = Field(
        default=False, description="With `against`: the baselines that stand here decide all the same."
    )
    update_baseline: bool = Field(default=False, description="Write the scores to `baselines/` when done.")
    baseline_windows: int = Field(
        default=1,
        ge=1,
        le=60,
        description="From how many windows a baseline is taken, this one and those before; 4 and more tell weeks from drops.",
    )
    accept: str | None = Field(
        default=None,
        description="With `update_baseline`: why a baseline is taken although a drift is known or it is lower than before, in one "
        "line; kept in the file ([guard.md](../explanation/guard.md#a-known-drift)).",
    )
    history: int = Field(default=0, ge=0, le=60, description="Evaluate this many windows before too, for the timeline.")
    touched: bool = Field(
        default=False, description="Evaluate earlier windows again too whose messages came, changed or went since."
    )
    newest_window: bool = Field(
        default=False, description="Evaluate each agent on the newest window it was evaluated on instead of fixing one."
    )
    accepted_drops: Sequence[AcceptedDrop] = Field(default=(), description="Drops that somebody answers for.")
    by_dimension: Mapping[str, Mapping[str, float]] = Field(
        default_factory=dict, description="Allowed drops of single dimensions, by the names of these options."
    )
    usual: Mapping[str, Any] = Field(default_factory=dict, description="The rules that `persona.yaml` states.")

    def settled(self, said: Mapping[str, Any]) -> Self:
        """Return the request with what a world's settings say of options that were not given."""
        return self.model_copy(
            update={name: value for name, value in said.items() if name not in self.model_fields_set}
        )

    if not TYPE_CHECKING:

        def __init__(self, **asked: Any) -> None:
            try:
                super().__init__(**asked)
            except ValidationError as error:
                raise ConfigError([_problem(item) for item in error.errors(include_url=False)]) from None

    @model_validator(mode="before")
    @classmethod
    def _from_texts(cls, asked: Any) -> Any:
        return {name: _inside(name, value) for name, value in asked.items()}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.accept_baseline and self.against is None:
            raise ValueError("accept_baseline needs against")
        if self.accept is not None and not (self.accept.strip() and self.accept.isprintable()):
            raise ValueError(f"accept is a reason in one line of text, not {self.accept!r}")
        return self


class Asking(TypedDict, total=False):
    """Options of an evaluation by name, as in ``EvaluationRequest``."""

    agents: Sequence[str] | str | None
    dimensions: Sequence[str] | str | None
    window: str
    as_of: datetime | str | None
    since: datetime | str | None
    samples: int
    grouping: int | None
    record: bool
    fresh: bool
    max_usd: float | None
    confirm: bool
    synthetic: bool
    facts: bool
    regression_delta: float
    proposition_delta: float
    undecided_delta: float | None
    threshold: float | None
    min_coverage: float | None
    fail_on: Sequence[str] | str | None
    only_fail_on: Sequence[str] | str | None
    require_calibration: bool | None
    against: str | None
    accept_baseline: bool
    history: int
    touched: bool


Asking.__doc__ = f"{Asking.__doc__}\n\nAttributes:\n" + "\n".join(
    f"    {name}: {EvaluationRequest.model_fields[name].description}" for name in Asking.__annotations__
)
# Options of no surface: how Dagster's steps cut a run, and what only a world says. What taking baselines adds.
INTERNAL = ("newest_window", "accepted_drops", "by_dimension", "usual")
OF_BASELINES = ("update_baseline", "baseline_windows", "accept")
OF_JUDGE = ("judge", "max_usd", "record", "fresh", "grouping")


def option_fields(*, without: Collection[str] = ()) -> dict[str, FieldInfo]:
    """Return the options by name, those of no surface and some others left out."""
    return {
        name: field
        for name, field in EvaluationRequest.model_fields.items()
        if name not in INTERNAL and name not in without
    }


Model = TypeVar("Model", bound=BaseModel)


def with_options(model: type[Model], names: Iterable[str], *, most: float | None = None) -> type[Model]:
    """Return a model, in its own name, with options as further fields, None where one is not given.

    ``most`` bounds numbers that have no upper bound of their own.
    """
    fields = dict[str, Any]()
    for name in names:
        kind: Any = list[str] if kind_of(name) is list else kind_of(name)
        default, bounds = EvaluationRequest.model_fields[name].default, bounds_of(name)
        about = told(name) + ("" if default is None else f" Default: {str(default).lower()}.")
        fields[name] = (kind | None, Field(default=None, ge=bounds[0], le=bounds[1] or most, description=about))
    return create_model(model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **fields)


def kind_of(name: str) -> type:
    """Return the type of an option for surfaces without times. ``list`` is a list of names."""
    annotation = EvaluationRequest.model_fields[name].annotation
    kinds = get_args(annotation) or (annotation,)
    return list if name in _LISTS else next((kind for kind in (bool, int, float) if kind in kinds), str)


def told(name: str, *, links: bool = False) -> str:
    """Return what an option means, for people; as Markdown with its links to pages, else as plain text."""
    text = EvaluationRequest.model_fields[name].description or ""
    return text if links else re.sub(r" \(\[.*?\)\)", "", text).replace("`", "")


def given(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that run config or settings give. None, and values that once meant None, are left out."""
    return {
        name: value
        for name, value in asked.items()
        if not (
            value is None
            or value == ""
            or value in _ONCE_NONE.get(name, ())
            or (name == "min_coverage" and isinstance(value, int | float) and value < 0)
        )
    }


def moment(text: str | None, name: str = "--as-of") -> datetime | None:
    """Return the time of an option, None where it is not given; ``ConfigError``: it is not an RFC 3339 time with an offset."""
    try:
        return None if text is None else parse_time(text, name=name)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def parse_time(text: str, *, name: str = "time") -> datetime:
    """Return an RFC 3339 time in UTC; ``ValueError``: it is not one, or has no offset."""
    try:
        moment = datetime.fromisoformat(text.upper())
        if len(text) < 19 or text[10:11] not in "Tt ":
            raise ValueError(text)
    except ValueError:
        raise ValueError(f"{name} {text[:40]!r} is not an RFC 3339 time such as 2026-06-01T09:30:00Z") from None
    if moment.tzinfo is None:
        raise ValueError(f"{name} {text!r} has no offset; add Z or +02:00")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{name} {text!r} is out of range") from None


def _inside(name: str, value: Any) -> Any:
    """Return a value as the request has it, however a surface spells it."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if name in _LISTS:
        if text == EVERYTHING or (text == NOTHING and name in FAIL_LISTS):
            return None if text == EVERYTHING else []
        if not (names := names_in(text)):
            raise ValueError(
                f"{name}: a list of names is empty; write '{EVERYTHING}' or names with commas between them"
            )
        return names
    return parse_time(text, name=name) if name in _MOMENTS else value


def _problem(error: Any) -> Problem:
    where, kind, context = error["loc"], error["type"], error.get("ctx", {})
    name = str(where[0]) if where else ""
    if kind == "extra_forbidden":
        return Problem(f"there is no option {name!r}{did_you_mean(name, EvaluationRequest.model_fields)}")
    if kind == "value_error":
        return Problem(str(context["error"]))
    bounds = bounds_of(name)
    if kind in ("greater_than_equal", "less_than_equal", "finite_number"):
        return Problem(f"{name} must be {bounds_text(bounds)}, not {error['input']!r}")
    return Problem(f"{name} is {error['input']!r}: {error['msg'][0].lower()}{error['msg'][1:]}")


def bounds_of(name: str) -> tuple[float | None, float | None]:
    """Return the least and the most an option may be; None: no such bound."""
    found: dict[str, float] = {}
    for item in EvaluationRequest.model_fields[name].metadata:
        found |= {key: value for key in ("ge", "le") if (value := getattr(item, key, None)) is not None}
    return found.get("ge"), found.get("le")


def bounds_text(bounds: tuple[float | None, float | None]) -> str:
    """Return bounds in words."""
    least, most = bounds
    if least is None:
        return "a finite number"
    return f"at least {least:g}" if most is None else f"from {least:g} to {most:g}"


Base = TypeVar("Base")


@lru_cache
def offered(group: str) -> dict[str, EntryPoint]:
    """Return what installed packages offer under an entry point group, by name."""
    # Looking through every installed package takes time, so only an unknown name brings us here.
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=group)}


class Registry(Generic[Base]):
    """Classes of a kind by name, each imported when it is needed. Built-in names cannot be taken by plugins."""

    def __init__(
        self,
        group: str,
        base: type[Base],
        built_in: Mapping[str, str],
        *,
        what: str,
        spelled: Callable[[str], str] = str,
    ) -> None:
        """Declare a kind by the group of its entry points and the built-in ``module:Class`` by name.

        ``what`` is what one is called where it cannot be used, such as ``judge``; ``spelled`` gives a name's registered spelling.
        """
        self.group, self.base, self.built_in = group, base, built_in
        self.what, self.spelled = what, spelled
        self.loaded: dict[str, type[Base]] = {}

    def find(self, name: str) -> type[Base] | None:
        """Return a class by its registered spelling, None for an unknown name; ConfigError: it cannot be loaded or used."""
        if name not in self.loaded:
            point = EntryPoint(name, self.built_in[name], self.group) if name in self.built_in else self._others(name)
            if point is None:
                return None
            self.loaded[name] = self._load(point)
        return self.loaded[name]

    def add(self, name: str, found: type[Base]) -> None:
        """Add a class in this process; ConfigError: the name is taken."""
        name = self.spelled(name)
        known = self.find(name) or found
        if known is not found:
            raise ConfigError(f"{self.what} {name!r} is taken by {known.__name__}; choose another name")
        self.loaded[name] = found

    def names(self) -> list[str]:
        """Return every name, built-in ones first."""
        others = {*self.loaded, *map(self.spelled, offered(self.group))} - self.built_in.keys()
        return [*self.built_in, *sorted(others)]

    def hint(self, name: str, also: Iterable[str] = ()) -> str:
        """Return what ends a sentence about an unknown name: the nearest one, else all."""
        known = [*also, *self.names()]
        return did_you_mean(self.spelled(name), known) or "; known: " + ", ".join(known)

    def _others(self, name: str) -> EntryPoint | None:
        return next((point for other, point in offered(self.group).items() if self.spelled(other) == name), None)

    def _load(self, point: EntryPoint) -> type[Base]:
        said = f"{self.what} {point.name!r} ({point.value})"
        try:
            found = point.load()
        except Exception as error:
            raise ConfigError(f"{said} cannot be loaded: {error}") from error
        if not (isinstance(found, type) and issubclass(found, self.base)):
            raise ConfigError(f"{said} is no subclass of {self.base.__module__}.{self.base.__qualname__}")
        return found
