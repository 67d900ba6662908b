"""Simulated trials for demos, documentation and tests, with true effects that are known exactly.

They are made in a stream, so a trial of any size fits in memory. A seed gives the same records whatever the size
of the batches, and a longer trial begins with the records of a shorter one.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

_ARMS = np.array(["control", "treatment"])

# The model of `checkout`: all means are known in closed form, so the true effects are exact.
_USERS = 8_192  # drawn at a time, from a generator of their own
_COUNTRIES = np.array(["de", "fr", "us"])
_SHARES = np.array([0.3, 0.2, 0.5])
_PRICES = np.array([0.9, 1.0, 1.2])  # how much users of a country spend, relative to each other
_BEFORE = (3.0, 0.8)  # mean and standard deviation of the logarithm of earlier revenue
_BASKET = (8.0, 0.7)  # expected basket: intercept, and slope in earlier revenue
_BUYERS = np.array([0.60, 0.63])  # by arm
_SPREAD = np.array([0.4, 0.6])  # standard deviation of the logarithm of the basket, by arm


def checkout(n: int, *, seed: int = 0, effect: float = 1.0, chunk: int = 65_536) -> Iterator[pa.RecordBatch]:
    """A shop tries a new checkout button: one record per user, one user in two sees it.

    Revenue is 0 for those who do not buy and skewed for those who do; it grows with what the user spent before,
    and varies more under treatment. Columns: ``variant`` (control, treatment), ``revenue``, ``converted`` (0, 1),
    ``revenue_before``, ``country`` (de, fr, us), ``user_id``.

    Args:
        n: The number of users.
        seed: Chooses the users.
        effect: The true effect on mean revenue; the mean under control is 17.57. The true effect on conversion
            is 0.03, from 0.60 to 0.63.
        chunk: Records in a batch.

    Example:
        >>> batches = checkout(1_000_000_000)
        >>> first = next(batches)
        >>> first.num_rows, first.schema.names
        (65536, ['variant', 'revenue', 'converted', 'revenue_before', 'country', 'user_id'])
    """
    pieces = (_checkout(min(_USERS, n - start), seed, start, effect) for start in range(0, n, _USERS))
    return _rechunk(pieces, chunk)


def _checkout(n: int, seed: int, start: int, effect: float) -> pa.RecordBatch:
    rng = np.random.default_rng([seed, start])
    # Every draw is of full length, so that a shorter trial is the beginning of a longer one.
    arm = rng.integers(0, 2, _USERS)[:n]
    country = rng.choice(len(_SHARES), _USERS, p=_SHARES)[:n]
    before = rng.lognormal(*_BEFORE, _USERS)[:n]
    converted = (rng.random(_USERS)[:n] < _BUYERS[arm]).astype(np.int64)
    noise = rng.standard_normal(_USERS)[:n]

    intercept, slope = _BASKET
    basket = (intercept + slope * before) * _PRICES[country]
    log_mean, log_sd = _BEFORE
    mean_basket = (intercept + slope * np.exp(log_mean + log_sd**2 / 2)) * (_SHARES @ _PRICES)
    # The mean revenue of an arm is (share of buyers) × (mean basket) × growth; this growth makes the effect exact.
    growth = (_BUYERS[0] * mean_basket + np.array([0.0, effect])) / (_BUYERS * mean_basket)
    spread = _SPREAD[arm]
    revenue = converted * basket * growth[arm] * np.exp(spread * noise - spread**2 / 2)
    return pa.record_batch(
        {
            "variant": pa.array(_ARMS[arm]),
            "revenue": pa.array(revenue),
            "converted": pa.array(converted),
            "revenue_before": pa.array(before),
            "country": pa.array(_COUNTRIES[country]),
            "user_id": pa.array([f"u{i:09d}" for i in range(start, start + n)]),
        }
    )


def wards(
    n: int, *, patients: int = 20, seed: int = 0, effect: float = 2.0, chunk: int = 50
) -> Iterator[pa.RecordBatch]:
    """A hospital trial randomised by ward: patients of a ward share its arm, and resemble each other.

    Scores have a standard deviation of about 12 within an arm, an intraclass correlation of about 0.2, and
    depend on age and baseline. Errors that ignore the wards are far too small here. Columns: ``arm`` (control,
    treatment), ``score``, ``age``, ``baseline``, ``ward``.

    Args:
        n: The number of wards.
        patients: Their mean number in a ward; every ward has at least one.
        seed: Chooses the wards.
        effect: The true effect on the score, the same for every patient.
        chunk: Wards in a batch. No ward is ever split between batches.

    Example:
        >>> batch = next(wards(40))
        >>> batch.schema.names, len(batch.column("ward").unique())
        (['arm', 'score', 'age', 'baseline', 'ward'], 40)
    """
    for start in range(0, n, chunk):
        records = [_ward(seed, ward, patients, effect) for ward in range(start, min(start + chunk, n))]
        yield pa.Table.from_batches(records).combine_chunks().to_batches()[0]


def _ward(seed: int, ward: int, patients: int, effect: float) -> pa.RecordBatch:
    rng = np.random.default_rng([seed, ward])
    arm = rng.integers(0, 2)
    size = 1 + rng.poisson(patients - 1)
    shared = rng.normal(0, 5)
    age = np.clip(rng.normal(62, 14, size), 18, 99).round()
    baseline = rng.normal(50, 8, size) + shared / 2
    score = 20 + effect * arm + 0.6 * baseline - 0.15 * (age - 62) + 0.7 * shared + rng.normal(0, 9, size)
    return pa.record_batch(
        {
            "arm": pa.array([_ARMS[arm]] * size),
            "score": pa.array(score),
            "age": pa.array(age),
            "baseline": pa.array(baseline),
            "ward": pa.array([f"w{ward:05d}"] * size),
        }
    )


def _rechunk(pieces: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same records in batches of `rows`."""
    held: list[pa.RecordBatch] = []
    for piece in pieces:
        held.append(piece)
        while sum(batch.num_rows for batch in held) >= rows:
            table = pa.Table.from_batches(held)
            yield table.slice(0, rows).combine_chunks().to_batches()[0]
            held = table.slice(rows).to_batches()
    if held:
        yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]
