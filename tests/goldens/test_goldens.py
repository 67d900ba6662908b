"""What is read today is what the golden files say: effects, the service's OpenAPI document, and every command's help.

A change on purpose writes them anew with `make goldens`, in a commit of its own that names the reason.
"""

from __future__ import annotations

import copy
import difflib
import json
from typing import Any

import pytest
import sqlglot

from foldaway.plan.outcomes import KINDS
from foldaway.plan.vocabulary import ERRORS, ESTIMATORS, MODES
from goldens.cases import CASES, ROUNDED, readings
from goldens.comparing import DIGITS, differences
from goldens.files import EFFECTS, HELP, OPENAPI, STATEMENTS, effects_in
from goldens.statements import DIALECTS, statements
from goldens.surfaces import helps, openapi

AGAIN = "\nIf this is meant to be so, write the golden files anew: make goldens, in a commit that names the reason."


@pytest.mark.parametrize("name", CASES)
def test_effects_are_those_of_the_golden_file(name: str) -> None:
    golden, now = effects_in(name), readings(name)
    assert list(golden) == list(now)
    differing = [
        f"{name}, {way}: {difference}"
        for way in golden
        for difference in differences(golden[way], now[way], rounded=ROUNDED in way)
    ]
    assert not differing, "\n".join(differing) + AGAIN


def test_the_openapi_document_is_the_golden_one() -> None:
    differing = list(differences(json.loads(OPENAPI.read_text("utf-8")), openapi(), rounded=True))
    assert not differing, "\n".join(differing) + AGAIN


def test_the_help_of_every_command_is_the_golden_one() -> None:
    golden, now = HELP.read_text("utf-8"), "\n".join(helps())
    lines = difflib.unified_diff(golden.splitlines(), now.splitlines(), "golden", "now", lineterm="")
    assert golden == now, "\n".join(lines) + AGAIN


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_statement_of_a_dialect_is_the_golden_one_and_can_be_read(dialect: str) -> None:
    golden, now = (STATEMENTS / f"{dialect}.sql").read_text("utf-8"), statements()[dialect]
    lines = difflib.unified_diff(golden.splitlines(), now.splitlines(), "golden", "now", lineterm="")
    assert golden == now, "\n".join(lines) + AGAIN
    tree = sqlglot.parse_one(golden, read=dialect)
    again = tree.sql(dialect).replace("%(group_key)s", ":group_key")
    assert sqlglot.parse_one(again, read=dialect).sql(dialect) == tree.sql(dialect)


def test_every_case_has_its_file_and_every_file_its_case() -> None:
    assert {file.stem for file in EFFECTS.iterdir()} == set(CASES)


def test_cases_have_every_word_of_the_vocabulary() -> None:
    goldens = [effects_in(name)["exact"] for name in CASES]
    rows = [row for golden in goldens for row in golden["effects"]]
    outcomes = [outcome for golden in goldens for outcome in golden["plan"]["outcomes"]]
    federated = [golden["plan"]["federated"] for golden in goldens if "federated" in golden["plan"]]
    assert {row["estimator"] for row in rows if row["reliable"]} == set(ESTIMATORS)
    assert {row["se_kind"] for row in rows if row["reliable"]} == set(ERRORS)
    assert {each["kind"] for each in outcomes if isinstance(each, dict)} == set(KINDS)
    # What two servers' sums come to is read as those of mode sums.
    assert {each["mode"] for each in federated} == {mode for mode, word in MODES.items() if not word.two_servers}


ROW = {"outcome": "y", "arm": "b", "reliable": True, "n": 9, "estimate": 0.5, "std_error": 2.0, "p_value": 0.25}


@pytest.mark.parametrize(
    ("field", "value", "exact", "rounded"),
    [
        ("estimate", 0.5 + DIGITS, "same", "differs"),
        ("estimate", 0.5 + 3 * DIGITS, "differs", "differs"),
        ("p_value", 0.25 + DIGITS, "differs", "differs"),
        ("n", 10, "differs", "differs"),
        ("arm", "c", "differs", "differs"),
        ("reliable", False, "differs", "differs"),
        ("estimate", None, "differs", "differs"),
        ("why", "It is new.", "differs", "differs"),
    ],
)
def test_a_difference_is_told_by_row_and_field(field: str, value: Any, exact: str, rounded: str) -> None:
    old, new = {"effects": [ROW]}, {"effects": [{**ROW, field: value}]}
    for told, expected in ((False, exact), (True, rounded)):
        found = list(differences(old, new, rounded=told))
        assert (len(found) == 1) is (expected == "differs")
        assert all(each.startswith(f"effects [y, b] {field}: was ") for each in found)
    assert not list(differences(old, copy.deepcopy(old), rounded=True))


def test_a_row_more_or_less_is_a_difference() -> None:
    (found,) = differences({"effects": [ROW]}, {"effects": [ROW, ROW]}, rounded=False)
    assert found == "effects: was 1 in all, is 2 in all"
