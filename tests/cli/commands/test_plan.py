"""From a file of records to its plan, and what a plan is said to do."""

from __future__ import annotations

import json
import random
import re
import shlex
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import tomli_w

import foldaway as fa
from commands import at_terminal, foldaway
from foldaway.plan import Bootstrap
from foldaway.simulation.datasets import checkout
from foldaway.simulation.demo import PLAN
from pages import parsed
from plans import in_parts


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
    assert "unit of its own" not in made.stderr
    plan = fa.Plan.load(folder / "plan.toml")
    settings = {name: getattr(PLAN, name) for name in PLAN.__struct_fields__}
    ours = {"name": "my-trial", "outcomes": ["revenue", "converted"], "records_per_unit": "one", "expected_units": 2000}
    assert plan == fa.Plan(**{**settings, **ours})
    command = shlex.split(following.removeprefix("Next: foldaway "))
    foldaway(*command, folder=folder)
    foldaway("report", command[-1], folder=folder)
    page = parsed((folder / f"{command[-1]}.html").read_text(encoding="utf-8"))
    assert page.one("h1").text == "my-trial"
    assert len(list(page.find("p", class_="finding"))) == 2
    assert time.monotonic() - start < 300


def test_at_a_terminal_a_file_that_is_only_looked_at_is_not_folded(folder: Path) -> None:
    shown = at_terminal("plan", "new", folder / "trial.parquet", "--arm", "variant", "--outcome", "revenue").stderr
    assert "reading" in shown
    assert "folding" not in shown


def test_a_plan_is_printed_with_its_guesses_as_comments(folder: Path) -> None:
    done = foldaway("plan", "new", "trial.parquet", "--arm", "variant", "--outcome", "revenue", folder=folder)
    comments = [line.removeprefix("# ") for line in done.stdout.splitlines() if line.startswith("#")]
    *guesses, unsaid, _ = done.stderr.splitlines()
    assert comments[: len(guesses)] == guesses
    assert "Assumed: each record is a unit of its own." in " ".join(guesses)
    assert "which direction is better, and margins" in unsaid
    assert fa.Plan.loads(done.stdout).arms == {"control": 0.5, "treatment": 0.5}


def test_what_a_file_cannot_tell_is_there_to_be_uncommented(folder: Path) -> None:
    words = ("--arm", "variant", "--outcome", "revenue", "--outcome", "converted", "--levels", "country=de,fr,us")
    text = foldaway("plan", "new", "trial.parquet", *words, folder=folder).stdout
    text = re.sub(r"(?s)^outcomes = .*?\]\n", "", text, flags=re.MULTILINE)
    plan = fa.Plan.loads(re.sub(r"^# (outcomes|segments) =", r"\1 =", text, flags=re.MULTILINE))
    assert [(outcome.name, outcome.better) for outcome in plan.outcomes] == [("revenue", "higher"), ("converted", None)]
    assert plan.segments == ("country",)
    with_margin = fa.Plan.loads(
        re.sub(r'^# outcomes = (.*?"higher")', r"outcomes = \1, margin = 0.5", text, flags=re.MULTILINE)
    )
    assert "not worse than the control by more than 0.5" in with_margin.outcomes[0].wanted


def test_the_control_is_guessed_by_name_or_told(folder: Path, tmp_path: Path) -> None:
    words = ("plan", "new", "t.csv", "--arm", "g", "--outcome", "y")
    for control in ("Old", "Placebo"):
        lines = [f"{arm},{i}\n" for arm in ("New", control, "Z") for i in (1, 2)]
        (tmp_path / "t.csv").write_text("".join(["g,y\n", *lines]))
        guessed = fa.Plan.loads(foldaway(*words, folder=tmp_path).stdout)
        assert list(guessed.arms) == [control, "New", "Z"]
    told = fa.Plan.loads(foldaway(*words, "--control", "Z", folder=tmp_path).stdout)
    assert list(told.arms) == ["Z", "New", "Placebo"]
    assert "there is no arm 'Y'" in foldaway(*words, "--control", "Y", folder=tmp_path, code=1).stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("--arm", "variant"),
            "The columns of my trial.csv are: variant, revenue, converted, revenue_before, country, user_id.",
        ),
        (("--arm", "variant"), "with --outcome"),
        (("--arm", "varient", "--outcome", "revenue"), "no column 'varient'; did you mean 'variant'?"),
        (("--arm", "user_id", "--outcome", "revenue"), "has more than 20 different values"),
        (("--arm", "variant", "--outcome", "country"), "the outcome 'country' is not a number in"),
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


def test_a_messy_export_is_read_as_it_was_looked_at(tmp_path: Path) -> None:
    """Semicolons, decimal commas, several records of a unit, levels from the file, a ratio."""
    draw = random.Random(3)
    lines = ["user;arm;spent;orders;sessions;land"]
    spent: dict[str, list[float]] = {"old": [], "new": []}
    for user in range(400):
        arm = "old" if user % 2 else "new"
        for visit in range(1 + user % 3):
            written = "" if draw.random() < 0.05 else f"{draw.randrange(10_000) / 100:.2f}".replace(".", ",")
            lines.append(f"u{user};{arm};{written};{user % 2};{1 + user % 4};{'dfa'[(user + visit) % 3]}")
            spent[arm] += [float(written.replace(",", "."))] if written else []
    (tmp_path / "t.csv").write_text("\ufeff" + "\r\n".join(lines), "utf-8")
    words = ["--arm", "arm", "--outcome", "spent", "--outcome", "orders/sessions", "--unit", "user"]
    words += ["--segment", "land", "--levels", "land=all", "-o", "plan.toml"]
    told = foldaway("plan", "new", "t.csv", *words, folder=tmp_path).stderr
    assert "The records are of 400 different values of user" in told
    blank = len(lines) - 1 - sum(map(len, spent.values()))
    assert f"Without a value of spent: {blank} of {len(lines) - 1} records. The plan allows this" in told
    plan = fa.Plan.load(tmp_path / "plan.toml")
    assert plan.outcomes == (fa.Mean("spent", missing="allowed"), fa.Ratio("orders", "sessions"))
    assert (plan.segments, plan.covariates, plan.levels) == (("land",), (), {"land": ("a", "d", "f")})
    assert (plan.unit, plan.records_per_unit, plan.drop_limit) == ("user", "many", 0)
    trial = fa.fold_files(tmp_path / "t.csv", plan, key=bytes(16))
    assert trial.n == len(lines) - 1
    (first, *_) = trial.effects()
    assert (first.outcome, first.n) == ("spent", trial.n - blank)
    assert first.estimate == pytest.approx(np.mean(spent["new"]) - np.mean(spent["old"]))


def test_a_column_named_like_a_ratio_is_a_column(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arm,a/b,a,b\n" + "old,1,2,3\nnew,2,3,4\n" * 60)
    words = ("plan", "new", "t.csv", "--arm", "arm", "--outcome")
    assert fa.Plan.loads(foldaway(*words, "a/b", folder=tmp_path).stdout).outcomes == (fa.Mean("a/b"),)
    assert fa.Plan.loads(foldaway(*words, "b / a", folder=tmp_path).stdout).outcomes == (fa.Ratio("b", "a"),)
    assert "no column 'c'" in foldaway(*words, "a/c", folder=tmp_path, code=1).stderr


def test_a_plan_is_never_overwritten(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text("mine")
    words = ("plan", "new", folder / "my trial.csv", "--arm", "variant", "--outcome", "revenue", "-o", "plan.toml")
    assert foldaway(*words, folder=tmp_path, code=1).stderr == "error: plan.toml exists; choose another name.\n"
    assert (tmp_path / "plan.toml").read_text() == "mine"


def test_slips_in_a_file_or_in_an_option_are_told(tmp_path: Path) -> None:
    words = ("--arm", "g", "--outcome", "y", "--levels", "land=de,fr")
    (tmp_path / "t.csv").write_text("g;y;land\n" + "a;1;de\nb;2;\n" * 3)
    made = foldaway("plan", "new", "t.csv", *words, folder=tmp_path)
    assert "No record has the level 'fr' of land." in made.stderr
    assert "Without a value of land: 3 of 6 records. If you can, fill in the values." in made.stderr
    assert "As it is, the plan rejects every batch with such a record." in made.stderr
    assert "fewer than a cohort (100), so `foldaway run --save` stores nothing yet" in made.stderr
    assert made.stderr.splitlines()[-1].startswith("Next: repeat the command with -o")  # no file was written to run
    (tmp_path / "t.csv").write_text("g,y,land\n" + "a,1,de\nb,,fr\n" * 3)
    empty = foldaway("plan", "new", "t.csv", *words, folder=tmp_path)
    assert "Without a value of y: 3 of 6 records. The plan allows this" in empty.stderr
    assert "fill in" not in empty.stderr
    assert fa.Plan.loads(empty.stdout).outcomes == (fa.Mean("y", missing="allowed"),)
    (tmp_path / "t.csv").write_text("g,y,land\n" + "a,1,de\nb,SECRET,fr\n" * 3)
    other = foldaway("plan", "new", "t.csv", *words, folder=tmp_path, code=1).stderr
    assert "the outcome 'y' is not a number in 3 of 6 records" in other
    (tmp_path / "t.csv").write_text("g,y,land\n" + "a,1,de\nb,2,SECRET\n" * 3)
    unknown = foldaway("plan", "new", "t.csv", *words, folder=tmp_path, code=1).stderr
    assert "3 of 6 records have a value of 'land' that is none of the levels 'de', 'fr'" in unknown
    (tmp_path / "t.csv").write_text("g,y,land\n" + "a,1,de\nb,2,fr\n" * 3 + "SECRET,2,de\n")
    typo = foldaway("plan", "new", "t.csv", *words, folder=tmp_path, code=1).stderr
    assert "one value of 'g' occurs only once; if it is a typo" in typo
    absent = foldaway("plan", "new", "tt.csv", *words, folder=tmp_path, code=1).stderr
    assert "tt.csv matches no file; check the spelling" in absent
    assert "SECRET" not in other + unknown + typo


def test_few_faulty_records_are_left_out_by_the_plan(tmp_path: Path) -> None:
    slips = "a,SECRET,1,de\n" * 2 + "b,inf,1,de\nb,1,SECRET,fr\n" + "b,1,1,SECRET\n" * 3 + "a,,2,de\na,1,2,\n"
    (tmp_path / "t.csv").write_text("g,y,x,land\n" + "a,1,3,de\nb,2,4,fr\n" * 100 + slips)
    words = ("--arm", "g", "--outcome", "y", "--covariate", "x", "--levels", "land=de,fr", "-o", "plan.toml")
    told = foldaway("plan", "new", "t.csv", *words, folder=tmp_path).stderr
    assert "Not a number in y: 3 of 209 records." in told
    assert "Not a number in x: 1 of 209 records." in told
    assert "None of the listed levels of land: 3 of 209 records." in told
    assert "Without a value of y: 1 of 209 records. The plan allows this" in told
    assert "Without a value of land: 1 of 209 records." in told
    assert "The plan leaves out and counts records with such faults (drop_limit = 0.05)." in told
    assert "SECRET" not in told
    assert fa.Plan.load(tmp_path / "plan.toml").drop_limit == 0.05
    done = foldaway("run", "plan.toml", "t.csv", folder=tmp_path)
    assert "201 records (a: 101, b: 100)" in done.stdout


def test_a_rare_value_of_the_arm_is_taken_for_a_misspelling(tmp_path: Path) -> None:
    words = ("plan", "new", "t.csv", "--arm", "g", "--outcome", "y")
    (tmp_path / "t.csv").write_text("g,y\n" + "new,1\nold,2\n" * 200 + "else,2\n" * 3 + "SECRET,1\n")
    made = foldaway(*words, folder=tmp_path)
    assert '"else" is rare in g and may be a misspelling: 3 of 404 records.' in made.stderr
    assert "If it is an arm, add it to [arms] and correct the probabilities." in made.stderr
    assert "A value of g that occurs only once may be a misspelling: 1 of 404 records." in made.stderr
    assert "SECRET" not in made.stdout + made.stderr
    plan = fa.Plan.loads(made.stdout)
    assert (plan.arms, plan.drop_limit) == ({"old": 0.5, "new": 0.5}, 0.05)
    named = foldaway(*words, "--control", "else", folder=tmp_path).stdout
    assert list(fa.Plan.loads(named).arms) == ["else", "new", "old"]
    # A small arm is one where there is but one other.
    (tmp_path / "t.csv").write_text("g,y\n" + "new,1\nnew,2\n" * 200 + "old,2\n" * 3)
    assert set(fa.Plan.loads(foldaway(*words, folder=tmp_path).stdout).arms) == {"new", "old"}


@pytest.mark.parametrize(
    ("suffix", "words", "first", "kind", "position"),
    [
        ("csv", (), ["SECRET-NAME", "other", "31.5"], "a number", 3),
        ("csv", (), ["SECRET-NAME@example.org", "other", "y"], "what looks like a value", 1),
        ("csv", ("--arm", "x"), ["2024-02-29", "other", "y"], "what looks like a value", 1),
        ("csv", ("--arm", "x", "--outcome", "y"), ["SECRET-NAME", "control", "no"], "a value of that very column", 2),
        ("parquet", (), ["SECRET-NAME", "control", "no"], "a value of that very column", 2),
        ("arrow", ("--arm", "x"), ["SECRET-NAME", "control", "no"], "a value of that very column", 2),
    ],
)
def test_a_first_line_of_values_is_not_shown(
    tmp_path: Path, suffix: str, words: tuple[str, ...], first: list[str], kind: str, position: int
) -> None:
    file = tmp_path / f"bare.{suffix}"
    columns = [[f"SECRET-{i}" for i in range(8)], ["control", "treatment"] * 4, ["yes", "never"] * 4]
    table = pa.Table.from_arrays([pa.array(column) for column in columns], names=first)
    {"csv": pa.csv.write_csv, "parquet": pq.write_table, "arrow": feather.write_feather}[suffix](table, file)
    done = foldaway("plan", "new", file.name, *words, folder=tmp_path, code=1)
    assert f"{file.name} has {kind} where the name of column {position} of 3 should be: its first line" in done.stderr
    assert not [cell for cell in [*first[:2], "SECRET"] if cell in done.stderr + done.stdout]


def test_a_column_of_identifiers_in_a_short_file_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "short.csv").write_text("name,y\nSECRET-1,1\nSECRET-2,2\nSECRET-3,3\n")
    done = foldaway("plan", "new", "short.csv", "--arm", "name", "--outcome", "y", folder=tmp_path, code=1)
    assert "does not look like the column of the arm" in done.stderr
    assert "SECRET" not in done.stderr + done.stdout


# foldaway plan check


def test_planned_looks_are_said_with_their_boundaries(tmp_path: Path) -> None:
    """Lan's and DeMets's boundaries of O'Brien-Fleming type for two looks are known to be 2.963 and 1.969."""
    plan = fa.Plan(
        name="looks",
        arm="g",
        arms={"a": 0.5, "b": 0.5},
        outcomes=["y"],
        unit="u",
        federated="sums",
        expected_units=600,
        looks=fa.Looks(information={"units": 600}, at=[0.5, 1.0]),
    )
    plan.save(tmp_path / "looks.toml")
    said = " ".join(foldaway("plan", "check", tmp_path / "looks.toml").stdout.split())
    assert "50 % (z = 2.963), 100 % (z = 1.969). They decide on y:" in said
    assert "Of 600 units, so many would be in each group" in said  # and nothing of any time


def test_plan_check_says_what_the_plan_does(tmp_path: Path) -> None:
    PLAN.save(tmp_path / "plan.toml")
    done = foldaway("plan", "check", tmp_path / "plan.toml")
    assert PLAN.fingerprint in done.stdout
    assert "levels de, fr, us" in done.stdout
    assert "(levels: 4, counts: 256, sums: 1,024, spreads: 24, sizes: 4, coefficients: 9)" in " ".join(
        done.stdout.split()
    )
    assert max(map(len, done.stdout.splitlines())) <= 80
    answer = json.loads(foldaway("plan", "check", tmp_path / "plan.toml", "--json").stdout)
    assert fa.Plan.loads(json.dumps(answer["plan"])) == PLAN
    assert answer["fingerprint"] == PLAN.fingerprint


def checked(folder: Path, *more: str, **settings: Any) -> str:
    """What is said of a plan, in one line."""
    few: dict[str, Any] = {"arm": "variant", "arms": {"control": 0.5, "treatment": 0.5}, "outcomes": ["revenue"]}
    fa.Plan(name="devices", **{**few, **in_parts(settings)}).save(folder / "devices.toml")
    said = foldaway("plan", "check", folder / "devices.toml", *more).stdout
    assert max(map(len, said.splitlines())) <= 80
    return " ".join(said.split())


def test_plan_check_fits_80_columns_whatever_names_are_like(tmp_path: Path) -> None:
    name, long = "a-" * 45 + "plan", "a_column_with_a_name_of_many_letters_" * 2
    outcomes = [fa.Mean(long), fa.Share("latency_of_the_first_request_ms", above=1000, better="lower", margin=0.01)]
    country = {"column": "country", "levels": [f"country {place}" for place in range(60)]}
    parts: dict[str, Any] = {"covariates": [country, long + "x"], "unit": long + "u"}
    arms = {"control of the checkout page": 0.5, "the page with a button that is larger": 0.5}
    fa.Plan(name=name, arm=long + "a", arms=arms, outcomes=outcomes, segments=["country"], **parts).save(
        tmp_path / "p.toml"
    )
    said = foldaway("plan", "check", tmp_path / "p.toml", "--expect", "1000000").stdout
    assert max(map(len, said.splitlines())) <= 80
    checked(tmp_path, moments=fa.Moments(bootstrap=Bootstrap(200)), unit=long)


def test_plan_check_says_what_is_asked_of_outcomes_and_who_is_told_apart(tmp_path: Path) -> None:
    outcome = fa.Mean("latency", better="lower", margin=5, missing="allowed")
    slow = fa.Quantile("ms", (0.5,), bounds=(1, 60_000))
    country = {"column": "country", "levels": [f"country {i}" for i in range(30)]}
    strata = {"column": "week", "probabilities": {"1": {"control": 0.9, "treatment": 0.1}}}
    outcomes, segments = [outcome, slow], [country, "tier"]
    said = checked(tmp_path, unit="user", outcomes=outcomes, segments=segments, strata=strata)
    assert "asks whether an arm is not worse than the control by more than 5; lower is better; may be missing" in said
    assert "bins from 1 to 60,000" in said
    assert "country segment levels country 0, country 1," in said
    assert "tier segment each level that enough units have" in said
    assert "week stratum 1 stratum, " in said
    assert "faulty, unless it is an outcome that may be missing: then it counts for the others." in said


def test_plan_check_says_by_how_much_a_state_grows_with_a_level_that_the_plan_does_not_list(tmp_path: Path) -> None:
    said = checked(tmp_path, unit="user", segments=["tier", {"column": "country", "levels": ["de", "fr"]}])
    grows = re.search(
        r"It grows by (\d+) numbers, about [\d.]+ kB, with each level of tier that enough units have", said
    )
    assert grows is not None
    sizes = []
    for tiers in (2, 7):
        trial = fa.Trial(fa.Plan.load(tmp_path / "devices.toml"), key=bytes(16))
        i = np.arange(2_000)
        columns = {"user": i.astype(str), "tier": (i // 2 % tiers).astype(str), "country": np.full(2_000, "de")}
        trial.fold({**columns, "variant": np.where(i % 2, "control", "treatment"), "revenue": i % 7 / 7})
        sizes.append(len(trial.dumps()))
    assert (sizes[1] - sizes[0]) / 5 == pytest.approx(8 * int(grows[1]), rel=0.05)
    assert "It grows" not in checked(tmp_path, unit="user", segments=[{"column": "tier", "levels": ["a", "b"]}])


def test_plan_check_knows_that_nobody_leaves_a_site_alone_in_a_group(tmp_path: Path) -> None:
    said = checked(tmp_path, "--expect", "370", unit="u", federated="sums", cohort=20, smallest_cell=5)
    assert "At sites, nobody would be the only one of a group and arm" in said
    assert "If all of these units were devices: about 87 people" in said
    assert "each of its units counts as one message" in said


def test_plan_check_says_what_devices_send_and_keep(tmp_path: Path) -> None:
    one = checked(tmp_path, federated="one-message", covariates=["before"], drop_limit=0.05, cohort=1)
    assert "one-message: a device keeps the triangular factor of its records, 6 numbers, and no record" in one
    assert "stores tallies after every 1 message of devices (`cohort`)" in one
    assert "At the end, reports that wait on the server that ends the trial count if a cohort has come since" in one
    assert "reports of 10 devices (`smallest_cell`)" in one
    assert "30 days after its first record (`retention`)" in one
    assert "A device rejects a faulty record, whatever `drop_limit` says" in one
    assert "batch" not in one
    assert "Kept on the coordinator: " in one
    assert "reply" not in one
    delta = checked(tmp_path, federated="delta", retention=5_400)
    assert "a device keeps a count and 1 sum, and no record" in delta
    assert "1.5 hours after its first record" in delta
    settings: dict[str, Any] = {"covariates": ["before"], "reply_deadline": 60, "reply_share": 0.95}
    scores = checked(tmp_path, federated="scores", **settings)
    assert "its scores, 7 numbers" in scores
    assert "Moments that wait for others to complete a cohort when the trial begins to end are left out." in scores
    assert "moments of 100 devices" in scores
    assert "for 1 minute after the end (`reply_deadline`), or until 95 % of the devices in the" in scores
    site = checked(tmp_path, federated="one-message", unit="user", records_per_unit="together", drop_limit=0.05)
    assert "A site folds its batch without it." in site
    assert "Federated" not in checked(tmp_path)


def test_a_wrong_plan_is_told_in_sentences(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text('name = "x"\narm = "a"\noutcomes = ["y"]\n[arms]\na = 0.5\nb = 0.6\n')
    done = foldaway("plan", "check", tmp_path / "plan.toml", code=1)
    assert "add up to 1.1" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


# foldaway plan calibrate


@pytest.mark.parametrize("kind", ["toml", "json"])
def test_a_plan_of_devices_that_lacks_coefficients_is_calibrated(folder: Path, tmp_path: Path, kind: str) -> None:
    """Without them it is no plan that could be run; the command that it is referred to takes it all the same."""
    settings = {"name": "d", "arm": "variant", "arms": {"control": 0.5, "treatment": 0.5}, "outcomes": ["revenue"]}
    settings |= {"covariates": ["revenue_before"], "federated": "sums", "privacy": {"retention": 3600}}
    path, whole = tmp_path / f"plan.{kind}", tmp_path / f"whole.{kind}"
    path.write_text(json.dumps(settings) if kind == "json" else tomli_w.dumps(settings))
    assert "foldaway plan calibrate" in foldaway("plan", "check", path.name, folder=tmp_path, code=1).stderr
    foldaway("plan", "calibrate", path.name, str(folder / "trial.parquet"), "-o", whole.name, folder=tmp_path)
    plan = fa.Plan.load(whole)
    assert plan.coefficients is not None
    assert plan == fa.Plan.of({**settings, "coefficients": plan.coefficients})
    again = foldaway("plan", "calibrate", whole.name, str(folder / "trial.parquet"), folder=tmp_path)
    assert fa.Plan.loads(again.stdout) == plan


def test_moments_of_devices_need_no_coefficients(folder: Path, tmp_path: Path) -> None:
    settings = {"name": "d", "arm": "variant", "arms": {"control": 0.5, "treatment": 0.5}, "outcomes": ["revenue"]}
    settings |= {"covariates": ["revenue_before"], "federated": "one-message"}
    (tmp_path / "plan.json").write_text(json.dumps(settings))
    done = foldaway("plan", "calibrate", "plan.json", str(folder / "trial.parquet"), folder=tmp_path, code=1)
    assert "`coefficients` work only with sums" in done.stderr
