"""Whatever Python objects come in: they are folded, counted as faulty or refused, and nothing else happens."""

from __future__ import annotations

import datetime
import decimal
import fractions
import uuid
import warnings
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import foldaway as fa
from foldaway.records.faults import FaultyBatch
from fuzzing import fuzz
from inputs import OBJECTS

PLAN = fa.Plan(
    name="objects",
    arm="group",
    arms={"a": 0.5, "1": 0.3, "true": 0.2},
    outcomes=["y"],
    covariates=["x", {"column": "kind", "levels": ["p", "1", "false"]}],
    unit="id",
    weight="w",
    moments=fa.Moments(),
    records_per_unit="together",
)
DROP = msgspec.structs.replace(PLAN, drop_limit=1)


class Hostile:
    """An object that fails at everything one may ask of it."""

    def _fail(self, *_: object) -> Any:
        raise RuntimeError("SECRET")

    __str__ = __repr__ = __len__ = __iter__ = __eq__ = __float__ = __int__ = __index__ = __bool__ = _fail
    __lt__ = __add__ = __getitem__ = __contains__ = __array__ = __arrow_array__ = __format__ = __bytes__ = _fail

    def __hash__(self) -> int:
        raise RuntimeError("SECRET")


class Masked(Hostile):
    """One that even hides what it is."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("SECRET")


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**30, -(10**400), 2**63, -(2**63) - 1]),
    st.builds(lambda: 10**5000),  # which Python does not print
    st.floats(),
    st.sampled_from([1e40, 1.1e40, -1e300, 1e-41, 5e-324, -0.0]),
    st.decimals(allow_nan=False),  # a signalling NaN is more than pandas bears
    st.sampled_from([decimal.Decimal("NaN"), decimal.Decimal("1e999999"), decimal.Decimal("-Infinity")]),
    st.fractions(),
    st.complex_numbers(),
    st.text(max_size=5),
    st.sampled_from(["\ud800", "a\x00", "a", "p", "1", "true", "false"]),
    st.binary(max_size=5),
    st.dates(),
    st.datetimes(timezones=st.sampled_from([None, datetime.UTC])),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.sampled_from([np.int8(1), np.uint64(2**64 - 1), np.float16(1.5), np.longdouble("1e4000"), np.bool_(True)]),
    st.sampled_from(
        [
            np.datetime64("2020"),
            np.timedelta64(1, "s"),
            np.timedelta64(1, "ns"),
            np.datetime64(1, "ns"),
            np.str_("a"),
            np.bytes_(b"a"),
        ]
    ),
    st.sampled_from([pd.NA, pd.NaT, pd.Timestamp(0), pd.Interval(0, 1), pd.Period("2020")]),
    st.builds(Hostile),
    st.builds(object),
    st.sampled_from([int, len, Ellipsis, NotImplemented, uuid.NAMESPACE_DNS, fractions.Fraction(1, 3), range(3)]),
    st.builds(lambda: pa.scalar(1.5)),
    st.builds(lambda: np.ones((2, 2))),
    st.builds(lambda: (i for i in range(3))),
)
objects = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=2)
        | st.builds(lambda values: {str(type(value)) for value in values}, st.lists(inner, max_size=2))
    ),
    max_leaves=3,
)

USUAL: dict[str, st.SearchStrategy[Any]] = {
    "group": st.sampled_from(["a", 1, 1.0, "1", True, "true"]),
    "y": st.floats(-10, 10) | st.booleans() | st.integers(-9, 9),
    "x": st.floats(-10, 10),
    "kind": st.sampled_from(["p", 1, False]),
    "id": st.integers() | st.text(max_size=5) | st.binary(max_size=3),
    "w": st.floats(0.1, 10) | st.integers(1, 5),
}


@st.composite
def columns(draw: st.DrawFn) -> dict[str, list[Any]]:
    """Columns of usual values, with any objects strewn in; more or fewer than make a short list."""
    n = draw(st.sampled_from([1, 3, 30]))
    found = {name: [draw(strategy) for _ in range(n)] for name, strategy in USUAL.items()}
    for _ in range(draw(st.integers(0, 4))):
        found[draw(st.sampled_from([*USUAL]))][draw(st.integers(0, n - 1))] = draw(objects)
    if draw(st.booleans()):
        name = draw(st.sampled_from([*USUAL]))
        found[name] = [draw(objects)] * n
    return found


def fold(trial: fa.Trial, data: Any) -> fa.RecordError | None:
    before = trial.dumps()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # NumPy's, of numbers that were not looked at
            trial.fold(data)
    except fa.RecordError as error:
        refusal = error
    else:
        return None
    assert trial.dumps() == before
    assert refusal.__cause__ is refusal.__context__ is None
    assert "SECRET" not in str(refusal)
    return refusal


@pytest.mark.parametrize("form", OBJECTS)
@fuzz(max_examples=12)
@given(columns())
def test_any_object_in_any_column(form: str, found: dict[str, list[Any]]) -> None:
    """Where faulty records are left out, no object at all makes the batch be refused."""
    n = len(found["y"])
    make: Callable[[Any], Any] = OBJECTS[form]
    dropping = fa.Trial(DROP)
    assert fold(dropping, make(found)) is None
    assert dropping.n + dropping.dropped.total == n
    trial = fa.Trial(PLAN)
    refusal = fold(trial, make(found))
    if dropping.dropped:
        assert isinstance(refusal, FaultyBatch)
        assert refusal.faults == dropping.dropped
    else:
        assert refusal is None
        assert trial.n == n


@fuzz(max_examples=12)
@given(columns())
def test_every_form_finds_the_same_faults(found: dict[str, list[Any]]) -> None:
    """But for pandas, where missing has many names."""
    counts = []
    for form in ("dict of lists", "dict of tuples", "dict of object arrays", "list of dicts", "generator of dicts"):
        trial = fa.Trial(DROP)
        trial.fold(OBJECTS[form](found))
        counts.append(trial.dropped)
    assert all(faults == counts[0] for faults in counts)


@fuzz(max_examples=20)
@given(objects | st.lists(objects, max_size=5) | st.dictionaries(st.sampled_from([*USUAL]), objects, max_size=6))
def test_any_object_as_a_batch(data: Any) -> None:
    assume(not isinstance(data, Hostile))  # which is iterable, and fails in its own words
    trial = fa.Trial(PLAN)
    refusal = fold(trial, data)
    assert refusal is not None or trial.n == 0


@fuzz(max_examples=12)
@given(
    st.lists(st.dictionaries(st.sampled_from([*USUAL]) | st.integers() | st.text(), objects, max_size=8), min_size=1)
)
def test_any_records(data: list[dict[Any, Any]]) -> None:
    refusal = fold(fa.Trial(PLAN), data)
    assert refusal is None or str(refusal).startswith("The batch was rejected, and none of it was folded: ")


@pytest.mark.parametrize("n", [1, 30])
def test_an_object_that_hides_what_it_is_has_the_batch_refused(n: int) -> None:
    for name in USUAL:
        found: dict[str, list[Any]] = {"group": ["a"], "y": [1.0], "x": [1.0], "kind": ["p"], "id": ["u"], "w": [1.0]}
        for form in ("dict of lists", "list of dicts"):
            data = OBJECTS[form]({**{key: values * n for key, values in found.items()}, name: [Masked()] * n})
            refusal = fold(fa.Trial(DROP), data)
            assert refusal is not None
            assert "it could not be read (RuntimeError)" in str(refusal)
