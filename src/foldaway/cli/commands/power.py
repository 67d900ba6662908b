"""``foldaway plan power``: how large a trial must be, or what one of a given size can show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from foldaway.cli.terminal.options import AsJson, Delimiter, KeyOfState, PlanFile
from foldaway.cli.terminal.words import tell
from foldaway.errors import EstimateError

if TYPE_CHECKING:
    from foldaway.effects import Effects
    from foldaway.plan import Plan
    from foldaway.planning import Baseline
    from foldaway.planning.comparing import Goal

app = typer.Typer()

T = TypeVar("T")

_EACH = "[OUTCOME=]"


@app.command("power")
def power(
    plan: PlanFile,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="A saved state of an earlier trial, or files of earlier records, with or without an arm.",
        ),
    ] = None,
    level: Annotated[
        list[str] | None, typer.Option(metavar=f"{_EACH}NUMBER", help="The outcome's mean, share or ratio so far.")
    ] = None,
    sd: Annotated[
        list[str] | None,
        typer.Option(metavar=f"{_EACH}NUMBER", help="The standard deviation of a record; a share needs none."),
    ] = None,
    correlation: Annotated[
        list[str] | None, typer.Option(metavar=f"{_EACH}NUMBER", help="Of two records of one unit.")
    ] = None,
    explained: Annotated[
        list[str] | None, typer.Option(metavar=f"{_EACH}SHARE", help="Share of the variance that covariates explain.")
    ] = None,
    effect: Annotated[
        list[str] | None, typer.Option(metavar=f"{_EACH}NUMBER", help="The effect to find: 0.5, or 5% of the level.")
    ] = None,
    margin: Annotated[
        list[str] | None, typer.Option(metavar=f"{_EACH}NUMBER", help="How much worse the arm may be.")
    ] = None,
    goal: Annotated[
        list[str] | None,
        typer.Option(metavar=f"{_EACH}GOAL", help="different, better, 'not worse' or alike."),
    ] = None,
    better: Annotated[
        list[str] | None, typer.Option(metavar=f"{_EACH}SIDE", help="higher (the default) or lower.")
    ] = None,
    records: Annotated[float | None, typer.Option(help="Records of the whole trial.")] = None,
    units: Annotated[float | None, typer.Option(help="The same in units.")] = None,
    days: Annotated[float | None, typer.Option(help="The same in days.")] = None,
    records_per_unit: Annotated[float | None, typer.Option(help="The mean number of records of a unit.")] = None,
    size_cv: Annotated[float, typer.Option(help="Its standard deviation over its mean.")] = 0.0,
    records_per_day: Annotated[float | None, typer.Option(help="Records that arrive in a day.")] = None,
    units_per_day: Annotated[float | None, typer.Option(help="New units that arrive in a day.")] = None,
    chance: Annotated[float, typer.Option("--power", help="The chance of finding what is asked.")] = 0.8,
    alternative: Annotated[str | None, typer.Option(help="two-sided, greater or less; by default, the plan's.")] = None,
    correction: Annotated[
        str | None, typer.Option(help="holm, benjamini-hochberg or none; by default, the plan's.")
    ] = None,
    sequential: Annotated[
        bool, typer.Option("--sequential", help="Decide by the any-time interval, however often you look.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Also plot the result: .svg, .png or .pdf.")] = None,
    delimiter: Delimiter = None,
    key: KeyOfState = None,
    json: AsJson = False,
) -> None:
    """Say how large a trial must be, or what a given size can show."""
    from foldaway.plan import Plan
    from foldaway.planning import power as ask

    the_plan = Plan.load(plan)
    earlier = None if not source else _effects(source, the_plan, delimiter, key)
    known = _baselines(the_plan, earlier, level, sd, correlation, explained)
    # What is said of all outcomes is not said of those that the plan guards.
    free = [outcome.name for outcome in the_plan.outcomes if outcome.margin is None]
    asked = _by_outcome(the_plan, effect, "--effect", str, free)
    shares = {name: _number(text[:-1], "--effect") / 100 for name, text in asked.items() if text.endswith("%")}
    answer = ask(
        known,
        plan=the_plan,
        effect={name: _number(text, "--effect") for name, text in asked.items() if name not in shares} or None,
        relative=shares or None,
        margin=_numbers(the_plan, margin, "--margin") or None,
        goal=_by_outcome(the_plan, goal, "--goal", _goal) or None,
        better=_by_outcome(the_plan, better, "--better", str) or None,
        records=records,
        units=units,
        days=days,
        power=chance,
        records_per_unit=records_per_unit,
        size_cv=size_cv,
        records_per_day=records_per_day,
        units_per_day=units_per_day,
        alternative=alternative,  # type: ignore[arg-type]
        correction=correction,
        sequential=sequential,
    )
    print(answer.to_json() if json else answer)
    if plot is not None:
        _draw(answer.plot, plot)
        tell(f"Plot written to {plot}.")


def _draw(plot: Callable[[], Any], target: Path) -> None:
    try:
        plot().savefig(target)
    except (OSError, ValueError, ImportError) as error:
        raise EstimateError(f"the plot cannot be written to {target}: {error}") from None


def _baselines(
    plan: Plan,
    earlier: Effects | None,
    level: Sequence[str] | None,
    sd: Sequence[str] | None,
    correlation: Sequence[str] | None,
    explained: Sequence[str] | None,
) -> dict[str, Baseline]:
    """What is known of each outcome: what was said comes before what an earlier trial shows."""
    from foldaway.planning import Baseline, baselines_of

    known = {} if earlier is None else baselines_of(earlier)
    levels, deviations, correlations, shares = (
        _numbers(plan, texts, name)
        for texts, name in (
            (level, "--level"),
            (sd, "--sd"),
            (correlation, "--correlation"),
            (explained, "--explained"),
        )
    )
    names = [outcome.name for outcome in plan.outcomes]
    for name in names:
        if name not in levels:
            continue
        known[name] = Baseline(
            level=levels[name],
            sd=deviations.get(name),
            correlation=correlations.get(name, 0.0),
            explained=shares.get(name, 0.0),
        )
    missing = [name for name in names if name not in known]
    if len(missing) == len(names):
        raise EstimateError(
            f"nothing is known about {missing[0]!r} yet: use --from with an earlier trial or earlier records, or "
            "--level "
            "and, unless it is a share, --sd."
        )
    for name in missing:
        tell(f"Left out: nothing is known about {name!r}.")
    return known


def _goal(text: str) -> Goal:
    return cast("Goal", text)  # which `fa.power` checks


def _numbers(plan: Plan, texts: Sequence[str] | None, option: str) -> dict[str, float]:
    return _by_outcome(plan, texts, option, lambda text: _number(text, option))


def _by_outcome(
    plan: Plan, texts: Sequence[str] | None, option: str, read: Callable[[str], T], free: Sequence[str] = ()
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
    try:
        return float(text)
    except ValueError:
        raise EstimateError(f"{option} takes a number, or OUTCOME=NUMBER; {text!r} is none.") from None


def _effects(sources: Sequence[str], plan: Plan, delimiter: str | None, key: Path | None) -> Effects:
    """The effects in a saved state, or in files of earlier records that are folded away under the plan."""
    from foldaway.calibrating import Earlier
    from foldaway.cli.commands.state import file_of, read_key
    from foldaway.cli.terminal.progress import file_progress
    from foldaway.keeping.saved import is_saved
    from foldaway.sources.formats.chunk import WantedColumns, wanted_by
    from foldaway.sources.formats.files import column_names
    from foldaway.sources.formats.paths import expand
    from foldaway.sources.runs.shares import ReadOptions, fold_columns
    from foldaway.trial import saved_effects

    if len(sources) == 1 and (file := Path(sources[0])).exists():
        state = file_of(file)
        with state.open("rb") as opened:
            if is_saved(opened.read(8)):
                return saved_effects(state, key=read_key(key))
    paths, options = expand(list(sources)), ReadOptions(None, delimiter)
    has_arms = all(plan.arm in column_names(path, delimiter) for path in paths if isinstance(path, Path))
    earlier = Earlier(plan, has_arms=has_arms)
    columns = wanted_by(earlier.plan)
    wanted = columns if has_arms else WantedColumns(columns.numeric, tuple(set(columns.text) - {plan.arm}))
    with file_progress(paths) as progress:
        for path in paths:
            fold_columns(earlier, path, wanted, options, progress=partial(progress, path))
    return earlier.effects()
