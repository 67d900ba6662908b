"""Whatever the text of a plan is, it gives a plan or a PlanError."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import foldaway as fa
from fuzzing import fuzz
from plans import FULL, SMALL, plans


def faults(text: str) -> list[str]:
    with pytest.raises(fa.PlanError) as caught:
        fa.Plan.loads(text)
    assert caught.value.__cause__ is None
    return str(caught.value).split("\n")


def plan_or_error(text: str) -> fa.Plan | None:
    try:
        return fa.Plan.loads(text)
    except fa.PlanError as error:
        told = str(error)
    assert told.encode()  # it can be printed
    return None


# What is wrong with the text


@pytest.mark.parametrize(
    "text",
    ["{", "[", "{'name': 1}", "name = ", "null", "3", "true", "\x00", "\ud800", "<plan/>"],
)
def test_text_that_is_neither_format_is_called_that(text: str) -> None:
    (fault,) = faults(text)
    assert fault.startswith("the plan is neither TOML nor JSON: ")


@pytest.mark.parametrize("text", ["", "{}", "# nothing", "\n\n", '{"unit": "u"}', "[privacy]"])
def test_missing_settings_are_all_told(text: str) -> None:
    assert faults(text) == [f"`{setting}` is missing." for setting in ("name", "arm", "arms", "outcomes")]


def test_unknown_and_missing_settings_are_told_together() -> None:
    text = json.dumps({"name": "plan", "arm": "g", "arms": {"a": 0.5, "b": 0.5}, "outcome": ["y"], "zebra": 1})
    assert faults(text) == [
        "'outcome' is not a setting of a plan; did you mean 'outcomes'?",
        "'zebra' is not a setting of a plan.",
        "`outcomes` is missing.",
    ]


MISPLACED = {
    "cohort = 50": "`cohort` belongs in [privacy].",
    "device_records = 50": "`device_records` belongs in [federated].",
    "[levels]": "`levels` belongs to the column that it is of, in `baseline`, `covariates`, `segments` or `strata`: "
    '{column = "…", levels = …}.',
    'better = "lower"': "`better` belongs in [[outcomes]].",
    "replicates = 3": "`replicates` belongs in [moments.bootstrap].",
    "[privacy]\nchort = 50": "'chort' is not a setting of [privacy]; did you mean 'cohort'?",
    "[privacy]\nconfidence = 0.9": "`confidence` belongs at the top of the plan, before the first table.",
    "[privacy]\ndevice_records = 50": "`device_records` belongs in [federated].",
    "[federated]\nretention = 60": "`retention` belongs in [privacy].\n`federated.mode` is missing.",
    "[moments.bootstrap]\nzebra = 1\nreplicates = 3": "'zebra' is not a setting of [moments.bootstrap].",
    "[moments.bootstrap]": "`moments.bootstrap.replicates` is missing.",
}


@pytest.mark.parametrize("text", MISPLACED)
def test_a_setting_in_the_wrong_place_is_told_the_right_one(text: str) -> None:
    small = 'name = "small"\narm = "group"\narms = {a = 0.5, b = 0.5}\noutcomes = ["y"]'
    assert faults(f"{small}\n{text}") == MISPLACED[text].split("\n")


@pytest.mark.parametrize("level", ["name", "arms", "levels"])
def test_a_key_that_comes_twice_is_refused_in_json_as_in_toml(level: str) -> None:
    text = json.dumps(FULL)
    twice = {
        "name": text.replace('"name": "full"', '"name": "full", "name": "other"'),
        "arms": text.replace('"gold": 0.3', '"gold": 0.3, "gold": 0.3'),
        "levels": text.replace('"levels": ["free", "paid"]', '"levels": ["free", "paid"], "levels": ["a", "b"]'),
    }[level]
    assert twice != text
    assert faults(twice) == ["a key is given twice in the plan: keep one."]
    for toml in ('name = "full"\nname = "other"\n', "[arms]\n[arms]\n"):
        (fault,) = faults(toml)
        assert fault.startswith("a key is given twice in the plan (at line 2, ")


def test_a_byte_order_mark_and_blanks_are_no_fault(tmp_path: Path) -> None:
    plan = fa.Plan(**FULL)
    for suffix, text in ((".toml", plan.to_toml()), (".json", plan.to_json())):
        file = tmp_path / f"plan{suffix}"
        file.write_text("\n" + text.replace("\n", "\r\n"), encoding="utf-8-sig", newline="")
        assert fa.Plan.load(file) == plan


# Files


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, reason in ((tmp_path / "none.toml", "No such file"), (tmp_path, "directory"), (binary, "not UTF-8")):
        with pytest.raises(fa.PlanError, match=reason) as caught:
            fa.Plan.load(path)
        assert str(path) in str(caught.value)
        assert caught.value.__context__ is None


# Fuzzing

DEEP = 100_000
HOSTILE = [
    '{"name": ' + "[" * DEEP,
    "name = " + "[" * DEEP,
    "name = " + "{a = " * 5000,
    "a." * 5000 + "b = 1",
    "[" + "a." * 5000 + "b]",
    "expected_units = " + "1" * 5000,
    '{"expected_units": ' + "1" * 5000 + "}",
    "confidence = 1e400",
    '{"arms": {"a": NaN, "b": Infinity}}',
    '{"name": "\\ud800", "\\udfff": 1}',
    '"\ud800" = 1',
    "name = 2020-01-01\narm = 10:00:00\noutcomes = [1979-05-27T07:32:00Z]\narms = {}",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_refused(text: str) -> None:
    assert faults(text)


@fuzz(max_examples=30)
@given(st.text(st.characters(codec=None), max_size=200))
def test_any_text(text: str) -> None:
    assert plan_or_error(text) is None


@fuzz(max_examples=30)
@given(st.binary(max_size=200))
@example(b"\xef\xbb\xbf{}")
def test_any_file(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzzed.toml"
    file.write_bytes(content)
    with pytest.raises(fa.PlanError):
        fa.Plan.load(file)


@fuzz(max_examples=30)
@given(plans(), st.booleans(), st.data())
def test_a_good_plan_with_a_few_characters_changed(plan: fa.Plan, as_json: bool, data: st.DataObject) -> None:
    text = plan.to_json() if as_json else plan.to_toml()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 3))
        new = data.draw(st.text('"{}[]=,.:\n#0-eE\\ aN\ud800', max_size=3))
        text = text[:at] + new + text[at + gone :]
    found = plan_or_error(text)
    if found is not None:
        assert fa.Plan.loads(found.to_toml()) == found


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400)
NESTED = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@fuzz(max_examples=30)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(FULL, NESTED)), st.sampled_from([{}, SMALL, FULL]))
def test_nonsense_in_the_place_of_settings(nonsense: dict[str, Any], rest: dict[str, Any]) -> None:
    found = plan_or_error(json.dumps({**rest, **nonsense}))
    if found is not None:
        assert fa.Plan.loads(found.to_toml()) == found
