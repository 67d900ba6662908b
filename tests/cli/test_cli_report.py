"""From a CSV file to a report on the command line: real processes, real files."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import foldaway as fa
from commands import foldaway
from foldaway.simulation.datasets import checkout
from foldaway.simulation.demo import PLAN
from pages import parsed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own data")
    rows = pa.Table.from_batches(list(checkout(2_000, seed=3)))
    pa.csv.write_csv(rows, folder / "my trial.csv")
    pq.write_table(rows, folder / "trial.parquet")
    trial = fa.Trial(PLAN)
    trial.fold(rows)
    trial.save(folder / "state")
    return folder


# foldaway report


def test_a_report_from_a_state(folder: Path) -> None:
    done = foldaway("report", "state", "-o", "report.html", folder=folder)
    written = (folder / "report.html").read_text(encoding="utf-8")
    assert written == fa.Trial.load(folder / "state").report().html
    assert done.stderr == f"Report written to report.html ({len(written.encode()):,} bytes). Open it in a browser.\n"
    assert done.stdout == ""


def test_other_places_for_a_report(folder: Path) -> None:
    foldaway("report", "state", folder=folder)
    assert (folder / "state.html").exists()
    printed = foldaway("report", "state", "-o", "-", "--adjust", "holm", folder=folder)
    assert printed.stdout == fa.Trial.load(folder / "state").report(adjust="holm").html + "\n"
    assert printed.stderr == ""


def test_refusals_of_a_report(folder: Path) -> None:
    assert "is not a foldaway state" in foldaway("report", "my trial.csv", folder=folder, code=1).stderr
    assert not (folder / "my trial.csv.html").exists()
    before = (folder / "my trial.csv").read_bytes()
    done = foldaway("report", "state", "-o", "my trial.csv", folder=folder, code=1)
    assert done.stderr == "error: my trial.csv exists and is no report; choose another name.\n"
    assert (folder / "my trial.csv").read_bytes() == before
    assert "there is no adjustment" in foldaway("report", "state", "--adjust", "luck", folder=folder, code=1).stderr


def test_a_run_writes_a_report_along_with_its_table(folder: Path) -> None:
    PLAN.save(folder / "whole.toml")
    done = foldaway("run", "whole.toml", "trial.parquet", "--report", "run.html", folder=folder)
    assert "revenue: treatment against control" in done.stdout
    assert (folder / "run.html").read_text(encoding="utf-8") == fa.Trial.load(folder / "state").report().html
    refused = foldaway("run", "whole.toml", "trial.parquet", "--report", "whole.toml", folder=folder, code=1)
    assert refused.stderr == "error: whole.toml exists and is no report; choose another name.\n"
    assert refused.stdout == ""


# foldaway plan new


def test_without_options_the_columns_are_listed(folder: Path) -> None:
    done = foldaway("plan", "new", "my trial.csv", folder=folder)
    assert done.stdout.split() == ["variant", "revenue", "converted", "revenue_before", "country", "user_id"]
    assert "--arm COLUMN --outcome COLUMN" in done.stderr


def test_from_a_csv_file_to_a_report_in_three_commands(folder: Path) -> None:
    start = time.monotonic()
    made = foldaway(
        *("plan", "new", "my trial.csv", "--arm", "variant", "--outcome", "revenue", "--outcome", "converted"),
        *("--covariate", "revenue_before", "--levels", "country=de,fr,us", "--unit", "user_id", "-o", "plan.toml"),
        folder=folder,
    )
    *guesses, following = made.stderr.splitlines()
    assert [guess.split(":")[0] for guess in guesses[:2]] == ["Assumed", "Assumed"]
    plan = fa.Plan.load(folder / "plan.toml")
    assert plan == fa.Plan(**{**{n: getattr(PLAN, n) for n in PLAN.__struct_fields__}, "name": "my-trial"})
    command = shlex.split(following.removeprefix("Next: foldaway "))
    foldaway(*command, folder=folder)
    foldaway("report", command[-1], folder=folder)
    page = parsed((folder / f"{command[-1]}.html").read_text(encoding="utf-8"))
    assert page.one("h1").text == "my-trial"
    assert len(list(page.find("p", class_="finding"))) == 2
    assert time.monotonic() - start < 300


def test_a_plan_is_printed_with_its_guesses_as_comments(folder: Path) -> None:
    done = foldaway("plan", "new", "trial.parquet", "--arm", "variant", "--outcome", "revenue", folder=folder)
    comments = [line.removeprefix("# ") for line in done.stdout.splitlines() if line.startswith("#")]
    assert comments == done.stderr.splitlines()[:-1]
    assert fa.Plan.loads(done.stdout).arms == {"control": 0.5, "treatment": 0.5}


def test_the_control_is_guessed_by_name_or_told(folder: Path, tmp_path: Path) -> None:
    lines = [f"{arm},{i}\n" for arm in ("Alt", "Placebo", "Z") for i in (1, 2)]
    (tmp_path / "t.csv").write_text("".join(["g,y\n", *lines]))
    words = ("plan", "new", "t.csv", "--arm", "g", "--outcome", "y")
    guessed = fa.Plan.loads(foldaway(*words, folder=tmp_path).stdout)
    assert list(guessed.arms) == ["Placebo", "Alt", "Z"]
    told = fa.Plan.loads(foldaway(*words, "--control", "Z", folder=tmp_path).stdout)
    assert list(told.arms) == ["Z", "Alt", "Placebo"]
    assert "there is no arm 'Y'" in foldaway(*words, "--control", "Y", folder=tmp_path, code=1).stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("--arm", "variant"),
            "The columns of my trial.csv are: variant, revenue, converted, revenue_before, country, user_id.",
        ),
        (("--arm", "variant"), "with --outcome"),
        (("--arm", "varient", "--outcome", "revenue"), "no column 'varient'. Is it 'variant'?"),
        (("--arm", "user_id", "--outcome", "revenue"), "has more than 20 different values"),
        (("--arm", "variant", "--outcome", "country"), "the outcome 'country' is not made of numbers"),
        (("--arm", "variant", "--outcome", "revenue", "--covariate", "country"), "--levels 'country=first"),
        (("--arm", "variant", "--outcome", "revenue", "--levels", "country"), "--levels 'country=de,fr,us'"),
    ],
)
def test_what_is_missing_is_said_without_a_value(folder: Path, words: tuple[str, ...], told: str) -> None:
    done = foldaway("plan", "new", "my trial.csv", *words, folder=folder, code=1)
    assert told in done.stderr
    assert done.stdout == ""
    assert "u00000" not in done.stderr
    assert "treatment" not in done.stderr


def test_a_plan_is_never_overwritten(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text("mine")
    words = ("plan", "new", folder / "my trial.csv", "--arm", "variant", "--outcome", "revenue", "-o", "plan.toml")
    assert foldaway(*words, folder=tmp_path, code=1).stderr == "error: plan.toml exists; choose another name.\n"
    assert (tmp_path / "plan.toml").read_text() == "mine"


def test_slips_in_a_file_or_in_an_option_are_told(tmp_path: Path) -> None:
    words = ("--arm", "g", "--outcome", "y", "--levels", "land=de,fr")
    (tmp_path / "t.csv").write_text("g;y;land\n" + "a;1;de\nb;2;\n" * 3)
    assert "say --delimiter ';'" in foldaway("plan", "new", "t.csv", folder=tmp_path, code=1).stderr
    made = foldaway("plan", "new", "t.csv", *words, "--delimiter", ";", folder=tmp_path)
    assert "No record has the level fr of land." in made.stderr
    assert made.stderr.splitlines()[-1].startswith("Next: the same again with -o")  # no file was written to run
    (tmp_path / "t.csv").write_text("g,y,land\n" + "a,1,de\nb,2,SECRET\n" * 3)
    unknown = foldaway("plan", "new", "t.csv", *words, folder=tmp_path, code=1).stderr
    assert "3 records have a 'land' that is none of the levels de, fr" in unknown
    (tmp_path / "t.csv").write_text("g,y,land\n" + "a,1,de\nb,2,fr\n" * 3 + "SECRET,2,de\n")
    typo = foldaway("plan", "new", "t.csv", *words, folder=tmp_path, code=1).stderr
    assert "one value of 'g' occurs only once; a typo?" in typo
    absent = foldaway("plan", "new", "tt.csv", *words, folder=tmp_path, code=1).stderr
    assert "tt.csv matches no file; check the spelling" in absent
    assert "SECRET" not in unknown + typo


def test_a_first_line_of_values_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "bare.csv").write_text("SECRET-NAME,control,31.5\nSECRET-OTHER,treatment,7\n")
    done = foldaway("plan", "new", "bare.csv", folder=tmp_path, code=1)
    assert done.stderr == "error: bare.csv has a number in its first line, which must name the columns\n"


def test_a_column_of_identifiers_in_a_short_file_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "short.csv").write_text("name,y\nSECRET-1,1\nSECRET-2,2\nSECRET-3,3\n")
    done = foldaway("plan", "new", "short.csv", "--arm", "name", "--outcome", "y", folder=tmp_path, code=1)
    assert "does not look like the column of the arm" in done.stderr
    assert "SECRET" not in done.stderr + done.stdout
