"""``foldaway power``: how large a trial must be, or what one can show: one of a given size, or one that goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

import foldaway as fa
from foldaway.cli.terminal.connecting import Authority, Reader
from foldaway.cli.terminal.options import AsJson, Delimiter, KeyOfState, flag, given
from foldaway.cli.terminal.progress import fold_earlier
from foldaway.cli.terminal.saved_trial import SavedTrial, file_of, is_state
from foldaway.cli.terminal.served_trial import CHANCE
from foldaway.cli.terminal.where import ItsServer, find
from foldaway.cli.terminal.words import tell
from foldaway.errors import EstimateError, instead_of
from foldaway.sources.formats.paths import expand

if TYPE_CHECKING:
    from foldaway.planning import Baseline

app = typer.Typer()

T = TypeVar("T")

Texts = list[str] | None


def _each(value: str, help: str) -> Any:
    """An option that is said once for all outcomes, or for each by its name."""
    return given(f"[OUTCOME=]{value}", help)


@app.command("power")
def power(
    where: Annotated[
        str,
        typer.Argument(
            metavar="PLAN|WHERE",
            help="A plan, a .toml or .json file; or a trial that goes on: a saved state, a store's folder, or a trial "
            "on a server, by its name or address.",
        ),
    ],
    source: Annotated[
        Texts,
        typer.Option(
            "--from",
            metavar="FILE",
            help="A saved state of an earlier trial, or files of earlier records, with or without an arm.",
        ),
    ] = None,
    level: Annotated[Texts, _each("NUMBER", "The outcome's mean, share or ratio so far.")] = None,
    sd: Annotated[Texts, _each("NUMBER", "The standard deviation over records; not needed for a share.")] = None,
    correlation: Annotated[Texts, _each("NUMBER", "The correlation between two records of one unit.")] = None,
    explained: Annotated[Texts, _each("SHARE", "Share of the variance that covariates explain.")] = None,
    effect: Annotated[Texts, _each("NUMBER", "The effect to find: 0.5, or 5% of the level.")] = None,
    relative: Annotated[Texts, typer.Option(hidden=True)] = None,  # what Python calls it; see below
    margin: Annotated[Texts, _each("NUMBER", "How much worse the arm may be.")] = None,
    goal: Annotated[Texts, _each("GOAL", "different, better, 'not worse' or alike.")] = None,
    better: Annotated[Texts, _each("SIDE", "higher (the default) or lower.")] = None,
    records: Annotated[
        float | None, typer.Option(help="Records of the whole trial; WHERE: by default, twice as many as now.")
    ] = None,
    units: Annotated[float | None, typer.Option(help="Units in the whole trial.")] = None,
    days: Annotated[float | None, typer.Option(help="Days that the trial runs; WHERE: days from now.")] = None,
    records_per_unit: Annotated[float | None, typer.Option(help="The mean number of records of a unit.")] = None,
    size_cv: Annotated[
        float | None, typer.Option(help="The standard deviation of that number, divided by its mean.")
    ] = None,
    records_per_day: Annotated[float | None, typer.Option(help="Records that arrive in a day.")] = None,
    units_per_day: Annotated[float | None, typer.Option(help="New units that arrive in a day.")] = None,
    width: Annotated[
        float | None, typer.Option(help="WHERE: the width of an interval to wait for; prints when it is reached.")
    ] = None,
    chance: Annotated[float, typer.Option("--power", help="The chance of finding the effect.")] = CHANCE,
    alternative: Annotated[
        str | None, typer.Option(help="two-sided (the default), greater or less.")
    ] = None,  # None shows that it was not said
    correction: Annotated[
        str | None, typer.Option(help="holm, benjamini-hochberg or none; by default, the plan's.")
    ] = None,
    sequential: Annotated[bool, flag("sequential", "Decide by the any-time interval, however often you look.")] = False,
    plot: Annotated[Path | None, given("FILE", "Also plot the result: .svg, .png or .pdf.")] = None,
    delimiter: Delimiter = None,
    key: KeyOfState = None,
    server: ItsServer = None,
    token: Reader = None,
    ca: Authority = None,
    json: AsJson = False,
) -> None:
    """Say how large a trial must be, or what a trial can show.

    With a plan: how large the trial must be, or what one of a given size can show. With a trial that goes on: what it
    can still find, and when its intervals will be narrow enough. For yourself: from a file, nothing is rounded.
    """
    only_plans = {
        "from": source,
        "level": level,
        "sd": sd,
        "correlation": correlation,
        "explained": explained,
        "effect": effect,
        "margin": margin,
        "goal": goal,
        "better": better,
        "units": units,
        "records-per-unit": records_per_unit,
        "size-cv": size_cv,
        "units-per-day": units_per_day,
        "alternative": alternative,
        "correction": correction,
        "plot": plot,
        "delimiter": delimiter,
    }
    if not _is_plan(where):
        if unfit := [f"--{name}" for name, value in only_plans.items() if value is not None]:
            raise EstimateError(f"{where} is not a plan: {', '.join(unfit)} cannot be used for a trial that goes on.")
        ahead = find(where, key, server, token, ca).outlook(
            records=records, days=days, per_day=records_per_day, width=width, chance=chance, sequential=sequential
        )
        print(ahead.to_json() if json else ahead)
        return

    if width is not None:
        raise EstimateError("--width is for a trial that goes on; for a plan, name the --effect to find.")
    the_plan = fa.Plan.load(where)
    if relative:
        raise EstimateError(
            f"there is no option --relative; write a percentage of the level: --effect {the_plan.outcomes[0].name}=5%."
        )
    earlier = None if not source else _effects(source, the_plan, delimiter, key)
    said = {"level": level, "sd": sd, "correlation": correlation, "explained": explained}
    known = _baselines(the_plan, earlier, said)
    # What is said of all outcomes is not said of those that the plan guards.
    free = [outcome.name for outcome in the_plan.outcomes if outcome.margin is None]
    asked = _by_outcome(the_plan, effect, "--effect", str, free)
    shares = {name: _number(text[:-1], "--effect") / 100 for name, text in asked.items() if text.endswith("%")}
    answer = fa.power(
        known,
        plan=the_plan,
        effect={name: _number(text, "--effect") for name, text in asked.items() if name not in shares} or None,
        relative=shares or None,
        margin=_numbers(the_plan, margin, "--margin") or None,
        goal=_by_outcome(the_plan, goal, "--goal", str) or None,  # type: ignore[arg-type]
        better=_by_outcome(the_plan, better, "--better", str) or None,
        records=records,
        units=units,
        days=days,
        power=chance,
        records_per_unit=records_per_unit,
        size_cv=size_cv or 0.0,
        records_per_day=records_per_day,
        units_per_day=units_per_day,
        alternative=alternative or "two-sided",  # type: ignore[arg-type]
        correction=correction,
        sequential=sequential,
    )
    print(answer.to_json() if json else answer)
    if plot is not None:
        unwritten = "the plot cannot be written to {}: {}"
        with instead_of((OSError, ValueError, ImportError), lambda error: EstimateError(unwritten.format(plot, error))):
            answer.plot().savefig(plot)
        tell(f"Plot written to {plot}.")


def _is_plan(where: str) -> bool:
    """Whether it is a plan's file, and not a trial."""
    path = Path(where)
    return path.suffix.lower() in (".toml", ".json") and not (
        where.startswith(("http://", "https://")) or path.is_dir() or (path.is_file() and is_state(path))
    )


def _baselines(plan: fa.Plan, earlier: fa.Effects | None, said: Mapping[str, Texts]) -> dict[str, Baseline]:
    """What is known of each outcome: what was said comes before what an earlier trial shows."""
    from foldaway.planning import Baseline, baselines_of

    known = {} if earlier is None else baselines_of(earlier)
    numbers = {field: _numbers(plan, texts, f"--{field}") for field, texts in said.items()}
    for name in numbers["level"]:
        known[name] = Baseline(**{field: by_name[name] for field, by_name in numbers.items() if name in by_name})
    names = [outcome.name for outcome in plan.outcomes]
    missing = [name for name in names if name not in known]
    if len(missing) == len(names):
        raise EstimateError(
            f"nothing is known about {missing[0]!r} yet: use --from with an earlier trial or earlier records, or "
            "--level and, unless it is a share, --sd."
        )
    for name in missing:
        tell(f"Left out: nothing is known about {name!r}.")
    return known


def _numbers(plan: fa.Plan, texts: Sequence[str] | None, option: str) -> dict[str, float]:
    return _by_outcome(plan, texts, option, lambda text: _number(text, option))


def _by_outcome(
    plan: fa.Plan, texts: Sequence[str] | None, option: str, read: Callable[[str], T], free: Sequence[str] = ()
) -> dict[str, T]:
    """What an option says of each outcome: a value for all, or OUTCOME=VALUE for one."""
    found: dict[str, T] = {}
    names = [outcome.name for outcome in plan.outcomes]
    for text in texts or ():
        name, _, value = text.rpartition("=")
        if name and name not in names:
            raise EstimateError(f"{option}: the plan has no outcome {name!r}; it has {', '.join(names)}.")
        found |= {each: read(value) for each in ([name] if name else free or names)}
    return found


def _number(text: str, option: str) -> float:
    with instead_of(ValueError, EstimateError(f"{option} takes a number, or OUTCOME=NUMBER; {text!r} is none.")):
        return float(text)


def _effects(sources: Sequence[str], plan: fa.Plan, delimiter: str | None, key: Path | None) -> fa.Effects:
    """The effects in a saved state, or in files of earlier records that are folded away under the plan."""
    from foldaway.calibrating import Earlier
    from foldaway.sources.formats.files import column_names

    if len(sources) == 1 and (file := Path(sources[0])).exists() and is_state(file_of(file)):
        return SavedTrial(file, key).effects()
    paths = expand(list(sources))
    has_arms = all(plan.arm in column_names(path, delimiter) for path in paths if isinstance(path, Path))
    earlier = Earlier(plan, has_arms=has_arms)
    fold_earlier(earlier, earlier.plan, paths, delimiter, set() if has_arms else {plan.arm})
    return earlier.effects()
