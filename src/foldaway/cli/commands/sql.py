"""``foldaway sql``: the statement that sums a trial's records where they are."""

from __future__ import annotations

from typing import Annotated

import typer

import foldaway as fa
from foldaway.cli.terminal.options import KeyFile, PlanFile, flag, given
from foldaway.errors import PlanError
from foldaway.keeping.secret import read_or_make_key

app = typer.Typer()


@app.command()
def sql(
    plan: PlanFile,
    relation: Annotated[
        str | None,
        typer.Option("--from", metavar="TABLE|QUERY", help="A table's name, or a query that gives the plan's columns."),
    ] = None,
    dialect: Annotated[
        str | None, given("NAME", "duckdb, postgres, snowflake, bigquery …; a wrong name lists them all.")
    ] = None,
    group_key: Annotated[
        bool, flag("group-key", "Print the value that the statement's placeholder stands for instead. It is a secret.")
    ] = False,
    key: KeyFile = None,
) -> None:
    """Write the SQL statement that sums a plan's records.

    Your database runs it, and `foldaway run PLAN --sums` takes its answer.
    """
    the_plan = fa.Plan.load(plan)
    if group_key:
        if not the_plan.grouped or the_plan.hash != "sha256":
            raise PlanError('this plan has no group key: it needs a `unit` or `cluster`, and hash = "sha256".')
        print(fa.Trial(the_plan, key=None if key is None else read_or_make_key(key, new=True)).secret.for_warehouse())
        return
    if relation is None or dialect is None:
        raise PlanError("say what to select from and for which database: --from visits --dialect duckdb.")
    print(the_plan.sql(relation, dialect=dialect))
