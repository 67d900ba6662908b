"""``foldaway plan …``: a first plan for a file; what a plan will do, its registration and papers; its coefficients."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

import foldaway as fa
from foldaway.cli.terminal.options import AsJson, Database, Delimiter, KeyFile, PlanFile, Query, given, written
from foldaway.cli.terminal.printing import print_json
from foldaway.cli.terminal.progress import file_progress, fold_earlier
from foldaway.cli.terminal.words import in_lines, tell
from foldaway.errors import PlanError, SourceError, did_you_mean, instead_of
from foldaway.evidence.ledger import head_sentence
from foldaway.keeping.secret import read_or_make_key
from foldaway.sources.formats.paths import Stdin, expand

if TYPE_CHECKING:
    from foldaway.plan import Outcome
    from foldaway.planning.drafting import Roles, SeenRecords

app = typer.Typer(name="plan", help="Create and check plans.", no_args_is_help=True)

# Units in the figures of a dossier, unless others are expected.
_EXPECTED = 10_000


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
    register: Annotated[
        Path | None,
        given(
            "STATE",
            "Before the first record: enter the plan into the ledger of this new state. Prints a hash; publish it to "
            "prove when the plan was registered.",
        ),
    ] = None,
    key: KeyFile = None,
    dossier: Annotated[
        Path | None,
        given(
            "FILE",
            "Write data protection documents to this .md file and a .json file beside it: a record of processing and "
            "an annex to an impact assessment (GDPR Art. 30 and 35).",
        ),
    ] = None,
    controller: Annotated[str, given("TEXT", "For --dossier: name and contact details of the controller.")] = "",
    purpose: Annotated[str, given("TEXT", "For --dossier: why the trial is run, in a sentence.")] = "",
    recipient: Annotated[
        list[str] | None, given("TEXT", "For --dossier: who sees the effects; repeat for several.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Say what a plan will do, or what is wrong with it.

    It can also register the plan, and write documents about it for the data protection officer.
    """
    from foldaway.auditing.expected import expected, pace
    from foldaway.federated.modes import described
    from foldaway.report.page.plan_summary import summary

    the_plan = fa.Plan.load(plan)
    if dossier is not None:
        _write_dossier(
            the_plan, dossier, expect or the_plan.expected_units or _EXPECTED, controller, purpose, recipient or []
        )
    head = None if register is None else _register(plan, the_plan, register, key)
    if json:
        registered = {} if head is None else {"ledger_head": head}
        predicted = {} if expect is None else {"expected": [*pace(the_plan, expect), *expected(the_plan, expect)]}
        print_json({"fingerprint": the_plan.fingerprint, "plan": the_plan.settings(), **predicted, **registered})
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
    if head is not None:
        print(f"\n{head_sentence(head)}")


def _register(plan: Path, the_plan: fa.Plan, state: Path, key: Path | None) -> str:
    """Enter the plan into the ledger of a new state; the ledger's head."""
    from foldaway.cli.commands.state import require_savable

    require_savable(state, None, False)
    trial = fa.Trial(the_plan, key=None if key is None else read_or_make_key(key))
    trial.save(state)
    tell(f"The plan is registered in {state}. Next: foldaway run {plan} FILE --resume {state} --save {state}")
    return trial.chronicle.ledger.head


def _write_dossier(plan: fa.Plan, file: Path, expect: int, controller: str, purpose: str, shown_to: list[str]) -> None:
    """Write data protection documents for the plan, as Markdown and JSON."""
    from foldaway.dossier import OPEN, dossier

    if file.suffix == ".json":
        raise PlanError("name the .md file; the .json file is written beside it.")
    papers = dossier(plan, expect, controller=controller, purpose=purpose, recipients=shown_to)
    for path, text in ((file, papers.to_markdown()), (file.with_suffix(".json"), papers.to_json())):
        _write(path, text)
    tell(f"Written: {file} and {file.with_suffix('.json')}. Fill in what is marked {OPEN!r}.")


@app.command("new")
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of the trial's records.")],
    arm: Annotated[str | None, given("COLUMN", "The column that names the arm.")] = None,
    outcome: Annotated[
        list[str] | None,
        given("COLUMN", "What to compare: a mean, or a ratio as in orders/sessions; repeat for several."),
    ] = None,
    covariate: Annotated[list[str] | None, given("COLUMN", "Measured before treatment; repeat for several.")] = None,
    levels: Annotated[
        list[str] | None,
        given("COLUMN=A,B,…", "The values of a categorical covariate or segment, or all; repeat for several."),
    ] = None,
    segment: Annotated[
        list[str] | None, given("COLUMN", "Show effects for each value of this column too; repeat for several.")
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
    from foldaway.planning.drafting import Roles, draft
    from foldaway.sources.formats.files import column_names

    file = _only(file)
    columns = column_names(file, delimiter)
    if not (arm or outcome or covariate or levels or segment or unit):
        _list_columns(file, delimiter, columns)
        return
    if not arm or not outcome:
        listed = f" The columns of {file} are: {', '.join(columns)}." if columns else ""
        raise PlanError(f"say which column names the arm, with --arm, and what to compare, with --outcome.{listed}")
    categorical = dict(map(_level_list, levels or []))
    roles = Roles(
        arm=arm,
        outcomes=[_outcome(text, columns) for text in outcome],
        covariates=list(
            dict.fromkeys([*(covariate or []), *(each for each in categorical if each not in (segment or []))])
        ),
        levels=categorical,
        segments=segment or [],
        unit=unit,
    )
    _require_columns(file, columns, [*roles.named, *roles.numeric])
    drafted = draft(_look(file, delimiter, roles), name or _name(file), control)
    text = drafted.to_toml()
    if output is None:
        print(text, end="")
    else:
        _write(output, text)
    for sentence in [*drafted.assumed, _UNSAID]:
        tell(sentence)
    if output is None:
        tell("Next: repeat the command with -o plan.toml to write the plan to that file.")
        return
    command = ["foldaway", "run", str(output), str(file), *_said(delimiter), "--save", "trial.state"]
    tell(f"Next: {shlex.join(command)}")


@app.command("calibrate")
def calibrate(
    plan: PlanFile,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="Files of records from before the trial.")
    ] = None,
    output: Annotated[Path | None, written("printed by default")] = None,
    delimiter: Delimiter = None,
    database: Database = None,
    query: Query = None,
) -> None:
    """Write coefficients from earlier records into a plan. Arms and groups stay the same."""
    import tomli_w

    # A mode of devices, or a release, may need the very coefficients that are to be found.
    bare = fa.Plan.load(plan, federated=None, privacy={}, release=None, records_per_unit="many")
    the_plan = fa.Plan.load(
        plan, coefficients=fa.Coefficients.none(bare.predictors[1:], [value.name for value in bare.values])
    )
    if database is not None or query is not None:
        if files or database is None or query is None:
            raise SourceError("give files of earlier records, or --database and --query.")
        from foldaway.engines.sql.connecting import connected

        with closing(connected(database)) as connection:
            calibrated = the_plan.calibrated(connection, query)
    elif files:
        from foldaway.calibrating import Calibration

        calibration = Calibration(the_plan)
        fold_earlier(calibration, the_plan, expand(files), delimiter, {the_plan.arm, the_plan.unit, the_plan.cluster})
        calibrated = calibration.plan()
    else:
        raise SourceError("no earlier records: name files, or a --database and a --query.")
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


def _look(file: Path, delimiter: str | None, roles: Roles) -> SeenRecords:
    """Through the whole file once."""
    from foldaway.planning.drafting import SeenRecords
    from foldaway.sources.formats.chunk import WantedColumns
    from foldaway.sources.formats.files import ReadOptions, read

    look = SeenRecords(roles)
    wanted = WantedColumns(tuple(roles.numeric), tuple(roles.named))
    with file_progress([file], "reading") as progress:
        for batch in read(file, wanted, ReadOptions(None, delimiter), progress=partial(progress, file)):
            look.add(batch.records)
    return look


def _outcome(text: str, columns: Sequence[str]) -> Outcome:
    """A column's mean, or the ratio of two."""
    above, slash, below = text.partition("/")
    if not slash or text in columns:
        return fa.Mean(text)
    return fa.Ratio(above.strip(), below.strip())


def _level_list(text: str) -> tuple[str, list[str] | None]:
    column, equals, listed = text.partition("=")
    if not equals:
        raise PlanError(
            f"--levels {text!r} should be a column and its levels, as in --levels 'country=de,fr,us', or all of them, "
            "as in --levels country=all."
        )
    return column, None if listed == "all" else listed.split(",")


_UNSAID = "Not in the plan yet: which direction is better, and margins. Its comments show how to write them."


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
