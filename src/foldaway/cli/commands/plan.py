"""``foldaway plan …``: a first plan for a file, from its header and the names of its arms; what a plan will do.

Of the values in the file only the arms' names are ever shown, and what may be a misspelling of one. Probabilities are
never taken from the counts, or the sample-ratio check would compare the counts with themselves.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer

import foldaway as fa
from foldaway.cli.commands import power
from foldaway.cli.terminal.options import AsJson, Delimiter, KeyFile, PlanFile, given, written
from foldaway.cli.terminal.printing import print_json
from foldaway.cli.terminal.progress import file_progress, fold_earlier
from foldaway.cli.terminal.words import in_lines, tell
from foldaway.errors import PlanError, RecordError, did_you_mean, instead_of, many
from foldaway.evidence.ledger import head_sentence
from foldaway.keeping.secret import read_or_make_key
from foldaway.sources.formats.paths import Stdin, expand

app = typer.Typer(name="plan", help="Create and check plans.", no_args_is_help=True)
app.add_typer(power.app)

# A column with more values than this, or with fewer records of each than this, does not name arms.
_MOST_ARMS = 20

# Identifiers that are compared with one another, to see whether any comes twice.
_MOST_UNITS = 30_000_000
_FEWEST_RECORDS = 2

# A value of the arm's column that fewer than this share of all records have, and fewer than a tenth of those of any
# arm, is taken for a misspelling where there are two arms without it.
_RARE = 0.01

# What people call the arm that the others are compared with.
_CONTROLS = ("control", "ctrl", "placebo", "baseline", "base", "default", "off", "old", "a", "0", "false", "no")


@app.command("check")
def check(
    plan: PlanFile,
    expect: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="UNITS",
            help="Also say, for this many units, when tallies are stored and how many people's values could be worked "
            "out.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Say what a plan will do, or what is wrong with it."""
    from foldaway.auditing.expected import expected, pace
    from foldaway.federated.modes import described
    from foldaway.report.page.plan_summary import summary

    the_plan = fa.Plan.load(plan)
    if json:
        predicted = {} if expect is None else {"expected": [*pace(the_plan, expect), *expected(the_plan, expect)]}
        print_json({"fingerprint": the_plan.fingerprint, "plan": the_plan.settings(), **predicted})
        return
    print(summary(the_plan, described(the_plan)))
    if expect is not None:
        for question, sentences in (
            (f"When would a trial of {expect:,} units be stored and shown?", pace(the_plan, expect)),
            (
                f"Could anyone's values be worked out from a saved state of {expect:,} units?",
                expected(the_plan, expect),
            ),
        ):
            print(f"\n{question}")
            for sentence in sentences:
                print(in_lines(f"· {sentence}", indent="  "))


@app.command("register")
def register(
    plan: PlanFile,
    save: Annotated[Path, given("STATE", "Where to create the state; it holds no record yet.")],
    key: KeyFile = None,
) -> None:
    """Enter a plan into a new ledger before the first record.

    Prints a hash; publish it to prove when the plan was registered.
    """
    from foldaway.cli.commands.state import require_savable

    require_savable(save, None, False)
    trial = fa.Trial(fa.Plan.load(plan), key=None if key is None else read_or_make_key(key))
    trial.save(save)
    tell(f"The plan is registered in {save}. Next: foldaway run {plan} FILE --resume {save} --save {save}")
    print(head_sentence(trial.chronicle.ledger.head))


@app.command("dossier")
def dossier(
    plan: PlanFile,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The .md file to write; a .json file goes beside it."),
    ] = None,
    expect: Annotated[
        int, typer.Option(min=1, metavar="UNITS", help="How many units you expect, for the figures.")
    ] = 10_000,
    controller: Annotated[str, typer.Option(help="Name and contact details of the controller.")] = "",
    purpose: Annotated[str, typer.Option(help="Why the trial is run, in a sentence.")] = "",
    recipient: Annotated[list[str] | None, typer.Option(help="Who sees the effects; may be repeated.")] = None,
) -> None:
    """Write data protection documents for a plan.

    A record of processing and an annex to an impact assessment (GDPR Art. 30 and 35).
    """
    from foldaway.dossier import OPEN
    from foldaway.dossier import dossier as papers_for

    target = plan.with_suffix(".dossier.md") if output is None else output
    if target.suffix == ".json":
        raise PlanError("name the .md file; the .json file is written beside it.")
    papers = papers_for(fa.Plan.load(plan), expect, controller=controller, purpose=purpose, recipients=recipient or ())
    for path, text in ((target, papers.to_markdown()), (target.with_suffix(".json"), papers.to_json())):
        _write(path, text)
    tell(f"Written: {target} and {target.with_suffix('.json')}. Fill in what is marked {OPEN!r}.")


@app.command("new")
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of the trial's records.")],
    arm: Annotated[str | None, given("COLUMN", "The column that names the arm.")] = None,
    outcome: Annotated[list[str] | None, given("COLUMN", "What to compare between arms; repeat for several.")] = None,
    covariate: Annotated[list[str] | None, given("COLUMN", "Measured before treatment; repeat for several.")] = None,
    levels: Annotated[
        list[str] | None, given("COLUMN=A,B,…", "A categorical covariate and its levels; repeat for several.")
    ] = None,
    unit: Annotated[str | None, given("COLUMN", "The column that names who was randomised.")] = None,
    control: Annotated[str | None, given("ARM", "The arm to compare the others with.")] = None,
    delimiter: Delimiter = None,
    name: Annotated[str | None, typer.Option(help="The trial's name; by default, the file's name.")] = None,
    output: Annotated[Path | None, written("printed by default")] = None,
) -> None:
    """Write a first plan for a file of records. Review it before you run it.

    Without options, it lists the file's columns.
    """
    from foldaway.sources.formats.files import column_names

    file = _only(file)
    columns = column_names(file, delimiter)
    if not (arm or outcome or covariate or levels or unit):
        _list_columns(file, delimiter, columns)
        return
    categorical = dict(_level_list(text) for text in levels or [])
    numeric = [column for column in covariate or [] if column not in categorical]
    if not arm or not outcome:
        listed = f" The columns of {file} are: {', '.join(columns)}." if columns else ""
        raise PlanError(f"say which column names the arm, with --arm, and what to compare, with --outcome.{listed}")
    _require_columns(file, columns, [arm, *outcome, *numeric, *categorical, *([unit] if unit else [])])
    roles = Roles(arm, outcome, numeric, categorical, unit)
    plan, guesses = _plan(_look(file, delimiter, roles), roles, control, name or _name(file))
    settings, table, rest = plan.to_toml().partition("\n[")  # what a plan says outside tables stands before them
    text = "\n".join([*(f"# {guess}" for guess in guesses), "", settings, *_unsaid(plan), table + rest])
    if output is None:
        print(text, end="")
    else:
        _write(output, text)
    for guess in [*guesses, _UNSAID]:
        tell(guess)
    if output is None:
        tell("Next: repeat the command with -o plan.toml to write the plan to that file.")
        return
    command = ["foldaway", "run", str(output), str(file), *_said(delimiter), "--save", "trial.state"]
    tell(f"Next: {shlex.join(command)}")


@app.command("calibrate")
def calibrate(
    plan: PlanFile,
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Files of records from before the trial.")],
    output: Annotated[Path | None, written("printed by default")] = None,
    delimiter: Delimiter = None,
) -> None:
    """Write coefficients from earlier records into a plan. Arms and groups stay the same."""
    import tomli_w

    # A mode of devices, or a release, may need the very coefficients that are to be found.
    bare = fa.Plan.load(plan, federated=None, privacy={}, release=None, records_per_unit="many")
    the_plan = fa.Plan.load(
        plan, coefficients=fa.Coefficients.none(bare.predictors[1:], [value.name for value in bare.values])
    )
    calibration = fa.Calibration(the_plan)
    fold_earlier(calibration, the_plan, expand(files), delimiter, {the_plan.arm, the_plan.unit, the_plan.cluster})
    calibrated = calibration.plan()
    text = calibrated.to_toml()
    if bare.coefficients is None and plan.suffix.lower() == ".toml":  # with whatever comments it has
        table = {"coefficients": msgspec.to_builtins(calibrated.coefficients)}
        text = f"{plan.read_text(encoding='utf-8').rstrip()}\n\n{tomli_w.dumps(table)}"
    if output is None:
        print(text, end="")
    else:
        if output.suffix.lower() == ".json":
            fa.Plan.loads(text).save(output)
        else:
            output.write_text(text, encoding="utf-8")
        tell(f"{output} has the coefficients now. Its fingerprint is {calibrated.fingerprint}.")


class Roles(NamedTuple):
    """What columns are: the arm, outcomes, numeric and categorical covariates, who was randomised."""

    arm: str
    outcomes: list[str]
    numeric: list[str]
    levels: dict[str, list[str]]
    unit: str | None


class Seen(NamedTuple):
    """What a look through the file tells.

    Attributes:
        arms: How many records have each value of the arm's column.
        texts: How many records have something other than a number, by column that should hold numbers.
        unlisted: How many records have a level that is not listed, by column that has levels.
        unused: Levels that no record has, each with its column.
        missing: How many records have no value, by column.
        one_each: Whether no two records name the same unit.
        records: How many records there are.
    """

    arms: dict[str, int]
    texts: dict[str, int]
    unlisted: dict[str, int]
    unused: list[tuple[str, str]]
    missing: dict[str, int]
    one_each: bool
    records: int


def _only(file: Path) -> Path:
    """The one file of that name, or that a glob matches."""
    paths = expand([str(file)])
    if len(paths) > 1:
        raise PlanError(f"{file} matches {len(paths):,} files; name one of them.")
    if isinstance(paths[0], Stdin):
        raise PlanError("standard input can be read only once; name a file.")
    return paths[0]


def _list_columns(file: Path, delimiter: str | None, columns: Sequence[str]) -> None:
    if not columns:
        raise PlanError("lines of JSON have no header: use --arm COLUMN and --outcome COLUMN.")
    print("\n".join(columns))
    command = ["foldaway", "plan", "new", str(file), "--arm", "COLUMN", "--outcome", "COLUMN", "-o", "plan.toml"]
    command += _said(delimiter)
    tell(f"Next, with the column that names the arm and the one to compare: {shlex.join(command)}")


def _require_columns(file: Path, columns: Sequence[str], wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if columns and name not in columns]
    if missing:
        hint = did_you_mean(missing[0], columns)
        raise PlanError(f"{file} has no column {missing[0]!r}{hint} Its columns are: {', '.join(columns)}.")


def _look(file: Path, delimiter: str | None, roles: Roles) -> Seen:
    """Through the whole file once, in bounded memory."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from foldaway.numerics.kernels.siphash import hash_identifiers
    from foldaway.records.values import NULL, identifiers, numbers
    from foldaway.sources.formats.chunk import WantedColumns
    from foldaway.sources.formats.files import ReadOptions, read

    def counted(values: pa.Array) -> dict[Any, int]:
        return {pair["values"]: pair["counts"] for pair in pc.value_counts(values).to_pylist()}

    arm, levels, n = roles.arm, roles.levels, 0
    counts, texts, missing = Counter[str](), Counter[str](), Counter[str]()
    used: dict[str, Counter[int]] = {column: Counter() for column in levels}
    # Whether no unit comes twice, by hashes under a key that nobody keeps; given up for very large files.
    one_each, key, hashes = True, secrets.token_bytes(16), []
    numeric = (*roles.outcomes, *roles.numeric)
    wanted = WantedColumns(numeric, (arm, *levels, *([roles.unit] if roles.unit else [])))
    with file_progress([file], "reading") as progress:
        for batch in read(file, wanted, ReadOptions(None, delimiter), progress=partial(progress, file)):
            n += len(batch.records)
            for name, column in zip(batch.records.schema.names, batch.records.columns, strict=True):
                missing[name] += column.null_count
                if name == arm:
                    counts.update(counted(pc.drop_null(column.cast(pa.string()))))
                if name in levels:
                    known = pc.index_in(column.cast(pa.string()), pa.array(levels[name], pa.string()))
                    known = pc.if_else(pc.is_null(column), -1, pc.fill_null(known, len(levels[name])))
                    used[name].update(counted(known))
                if name == roles.unit and one_each:
                    hashes.append(np.unique(hash_identifiers(identifiers(column)[0], key)))
                    one_each = len(hashes[-1]) == len(column) and sum(map(len, hashes)) < _MOST_UNITS
            for name in (name for name in numeric if name in batch.records.schema.names):
                masks = numbers(batch.records.column(name), text=True)[1]
                texts[name] += sum(int(mask.sum()) for rule, mask in masks.items() if rule != NULL)
            if len(counts) > _MOST_ARMS:
                raise PlanError(f"{arm!r} has more than {_MOST_ARMS} different values: is it the column of the arm?")
    if not counts:
        raise RecordError(f"{file} has no records with an arm in {arm!r}.")
    unlisted = Counter({name: uses[len(levels[name])] for name, uses in used.items()})
    unused = [(name, level) for name in levels for i, level in enumerate(levels[name]) if not used[name][i]]
    once = one_each and bool(hashes) and len(np.unique(np.concatenate(hashes))) == sum(map(len, hashes))
    return Seen(dict(counts), dict(+texts), dict(+unlisted), unused, dict(+missing), once, n)


def _plan(seen: Seen, roles: Roles, control: str | None, name: str) -> tuple[fa.Plan, list[str]]:
    """A plan, and what is guessed in it."""
    from foldaway.plan.analysis import SLIPS

    rare = _rare(seen, control)
    found = sorted(seen.arms.keys() - rare)
    _require_arms(roles.arm, [seen.arms[arm] for arm in found])
    if control is not None and control not in found:
        raise PlanError(f"there is no arm {control!r} in {roles.arm!r}; there are {', '.join(found)}.")
    first = control or next((a for word in _CONTROLS for a in found if a.lower() == word), found[0])
    arms = [first, *(a for a in found if a != first)]
    values = _named(arms)
    plan = fa.Plan(
        name=name,
        arm=roles.arm,
        arms=dict.fromkeys(values or arms, 1 / len(arms)),
        arm_values=values,
        outcomes=roles.outcomes,
        covariates=[*roles.numeric, *roles.levels],
        levels=roles.levels,
        unit=roles.unit,
        records_per_unit="one" if seen.one_each else "many",
    )
    _require_usable(seen, roles)
    faults = [*_misspelt(seen, roles, rare), *_faults(seen, roles)]
    if few := sum(n for _, n, _ in faults) <= SLIPS * seen.records:
        plan = msgspec.structs.replace(plan, drop_limit=SLIPS if faults else 0)
    replace = "Replace these with the probabilities used for the allocation."
    guesses = [f"Assumed: equal probabilities for {', '.join(arms)}. {replace}"]
    if values:
        guesses.append(
            f"Named: {', '.join(f'{arm!r} is {name}' for name, arm in values.items())}. Choose better names."
        )
    if control is None:
        guesses.append(f'Assumed: "{first}" is the control arm (it is listed first); --control names another.')
    if roles.unit is None:
        guesses.append(
            "Assumed: each record is a unit of its own. If somebody has several records, name a --unit, or the errors "
            "would be too small."
        )
    guesses += [f"No record has the level {level!r} of {column}." for column, level in seen.unused]
    for what, n, instead in faults:
        done = f"The plan leaves such records out and counts them (drop_limit = {SLIPS:g})."
        if not few:
            done = "As it is, the plan rejects every batch with such a record. To leave such records out, write "
            done += "a drop_limit above their share of all records in the plan."
        guesses.append(f"{what}: {n:,} of {many(seen.records, 'record')}. {done} {instead}".rstrip())
    if seen.one_each:
        guesses.append(
            f'No two records of this file have the same {roles.unit}, so the plan says records_per_unit = "one". '
            "Delete that line if the same units may come back in later files: the errors would be too small."
        )
    return plan, guesses


def _rare(seen: Seen, control: str | None) -> set[str]:
    """Values of the arm's column that so few records have that they may be misspellings."""
    common = [n for n in seen.arms.values() if n >= _RARE * seen.records]
    if len(common) < 2:
        return set()
    most = min(_RARE * seen.records, min(common) / 10)
    return {arm for arm, n in seen.arms.items() if n < most and arm != control}


def _require_arms(column: str, counts: Sequence[int]) -> None:
    if len(counts) > 2 and sorted(counts)[:2] != [1, 1] and 1 in counts:
        raise PlanError(f"one value of {column!r} occurs only once; if it is a typo, correct it in the file.")
    if len(counts) < 2 or min(counts) < _FEWEST_RECORDS:
        raise PlanError(
            f"{column!r} does not look like the column of the arm: it should have two or more different values, each "
            f"in {_FEWEST_RECORDS} records or more."
        )


def _require_usable(seen: Seen, roles: Roles) -> None:
    """Refuses columns of which more values are wrong than single slips would be."""
    from foldaway.plan.analysis import SLIPS

    for column, n in (seen.texts | seen.unlisted).items():
        if n <= SLIPS * seen.records:
            continue
        if column in roles.levels:
            raise PlanError(
                f"{n:,} of {many(seen.records, 'record')} have a value of {column!r} that is none of the levels "
                f"{', '.join(map(repr, roles.levels[column]))}: name every level, spelled exactly as in the file, "
                "including capitals and spaces."
            )
        of = f"{column!r} is not a number in {n:,} of {many(seen.records, 'record')}"
        if column in roles.numeric:
            raise PlanError(
                f"the covariate {of}; if it is categorical, list its levels: --levels '{column}=first,second,third'."
            )
        raise PlanError(
            f"the outcome {of}; write yes and no as 1 and 0, and leave the field empty where there is no value."
        )


def _misspelt(seen: Seen, roles: Roles, rare: set[str]) -> Iterator[tuple[str, int, str]]:
    """The same of records whose arm is none of the plan's. What a single record has might be somebody's name."""
    unnamed = [arm for arm in sorted(rare) if seen.arms[arm] < _FEWEST_RECORDS]
    for arm in sorted(rare.difference(unnamed)):
        an_arm = "If it is an arm, add it to [arms] and correct the probabilities."
        yield f'"{arm}" is rare in {roles.arm} and may be a misspelling', seen.arms[arm], an_arm
    if unnamed:
        yield f"A value of {roles.arm} that occurs only once may be a misspelling", len(unnamed), ""


def _faults(seen: Seen, roles: Roles) -> Iterator[tuple[str, int, str]]:
    """What records are faulty for, how many are, and what else can be done."""
    for column, n in seen.texts.items():
        yield f"Not a number in {column}", n, "If you can, correct them in the file."
    for column, n in seen.unlisted.items():
        yield f"None of the listed levels of {column}", n, "If they belong to the trial, add their level to --levels."
    for column, n in seen.missing.items():
        instead = "If you can, fill in the values."
        if column in roles.outcomes:
            table = f'{{kind = "mean", column = "{column}", missing = "allowed"}}'
            instead = f"To count them for the other outcomes, write {table} in outcomes."
        yield f"Without a value of {column}", n, instead


_UNSAID = "Not in the plan yet: which direction is better, margins, and segments. Its comments show how to write them."


def _unsaid(plan: fa.Plan) -> list[str]:
    """Comments that show how to write what no file can tell."""
    import json

    columns = [outcome.columns[0] for outcome in plan.outcomes]
    first, *others = (json.dumps(column, ensure_ascii=False) for column in columns)
    told = f'{{kind = "mean", column = {first}, better = "higher"}}'
    segment = json.dumps(next(iter(plan.levels), "COLUMN"), ensure_ascii=False)
    return [
        "# To say which direction is better, write an outcome as a table, here the first:",
        f"# outcomes = [{', '.join([told, *others])}]",
        "# With `margin = 0.5` in the table, the question is whether the outcome is not worse by more than that.",
        "# To get effects within the levels of a column as well:",
        f"# segments = [{segment}]",
    ]


def _named(arms: list[str]) -> dict[str, str]:
    """Names for arms that are numbers or truth values, by which nobody knows them; none if they have names."""
    if not all(re.fullmatch(r"-?\d+|true|false", arm, re.IGNORECASE) for arm in arms):
        return {}
    others = ["treatment"] if len(arms) == 2 else [f"treatment {n}" for n in range(1, len(arms))]
    return dict(zip(["control", *others], arms, strict=True))


def _level_list(text: str) -> tuple[str, list[str]]:
    column, equals, listed = text.partition("=")
    if not equals:
        raise PlanError(f"--levels {text!r} should be a column and its levels: --levels 'country=de,fr,us'.")
    return column, listed.split(",")


def _said(delimiter: str | None) -> list[str]:
    """The delimiter as an option."""
    return [] if delimiter is None else ["--delimiter", delimiter.replace("\t", "\\t")]


def _name(file: Path) -> str:
    """The file's name without suffixes, as a plan's name may be."""
    stem = file.name.split(".")[0]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:100] or "trial"


def _write(output: Path, text: str) -> None:
    exists = PlanError(f"{output} exists; choose another name.")
    unwritten = "the plan cannot be written to {}: {}."
    with (
        instead_of(OSError, lambda error: PlanError(unwritten.format(output, error.strerror))),
        instead_of(FileExistsError, exists),
        output.open("x", encoding="utf-8") as file,
    ):
        file.write(text)
