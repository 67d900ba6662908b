"""Simulated trials for demos, documentation and tests, with true effects that are known exactly.

They are made in a stream, so a trial of any size fits in memory. A seed gives the same records whatever the size
of the batches, and a longer trial begins with the records of a shorter one.
"""

from collections.abc import Callable, Iterator

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
    return _in_batches(lambda start, users: _checkout(users, seed, start, effect), n, chunk)


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


# The model of `visits`.
_VISIT = (0.1, 0.4)  # how likely a user is to come on a day: from the rarest visitor to the most frequent
_MINUTES = 20.0
_USER, _DAY = 8.0, 6.0  # standard deviations between users, and between the visits of one
_LATE = 0.3  # how many of the records that are still under way miss another day's batch


def visits(
    users: int, *, days: int = 14, seed: int = 0, effect: float = 1.0, longest_delay: int = 3
) -> Iterator[pa.RecordBatch]:
    """An app tries a new home page: users come back on many days, and their records arrive late and out of order.

    One batch for each day holds the records that arrived on it, some of them of earlier days, so that the records
    of a user are spread over many batches. Visits of a user resemble each other (intraclass correlation 0.64): errors
    that ignore users are too small. Columns: ``variant`` (control, treatment), ``minutes``, ``usual_minutes`` (measured
    before the trial), ``day``, ``user_id``.

    Args:
        users: Their number.
        days: Days of the trial; the last batches hold what arrives after its end.
        seed: Chooses the users.
        effect: The true effect on the minutes of a visit, the same for every visit.
        longest_delay: After how many days the last record of a day has arrived.

    Example:
        >>> batches = list(visits(500))
        >>> len(batches), batches[5].schema.names
        (17, ['variant', 'minutes', 'usual_minutes', 'day', 'user_id'])
        >>> sorted(set(batches[5]["day"].to_pylist()))  # of the sixth batch
        [3, 4, 5, 6]
    """
    rng = np.random.default_rng([seed, 0])
    arm = rng.integers(0, 2, users)
    often = rng.uniform(*_VISIT, users)
    own = rng.normal(_MINUTES, _USER, users)
    usual = own + rng.normal(0, _DAY / 2, users)
    names = np.array([f"u{i:07d}" for i in range(users)])
    under_way: list[pa.Table] = []
    for day in range(1, days + longest_delay + 1):
        rng = np.random.default_rng([seed, day])
        if day <= days:
            here = np.flatnonzero(rng.random(users) < often)
            minutes = own[here] + effect * arm[here] + rng.normal(0, _DAY, len(here))
            of_day = {"variant": _ARMS[arm[here]], "minutes": minutes, "usual_minutes": usual[here]}
            under_way.append(pa.table({**of_day, "day": np.full(len(here), day), "user_id": names[here]}))
        waiting = pa.concat_tables(under_way)
        due = waiting["day"].to_numpy() <= day - longest_delay
        late = (rng.random(len(due)) < _LATE) & ~due
        arrived = waiting.filter(pa.array(~late))
        under_way = [waiting.filter(pa.array(late))]
        order = rng.permutation(arrived.num_rows)
        yield pa.RecordBatch.from_arrays(
            [column.combine_chunks() for column in arrived.take(order).columns], schema=arrived.schema
        )


def clinic(
    number: int, patients: int, *, seed: int = 0, effect: float = 3.0, chunk: int = 1_000
) -> Iterator[pa.RecordBatch]:
    """One clinic of a trial in many: patients are randomised one by one, in each clinic apart.

    Clinics differ in the level of their scores, in their patients' age and in how much scores vary; the effect is the
    same in all. Columns: ``arm`` (control, treatment), ``score``, ``baseline``, ``age``, ``clinic``, ``patient``.

    Args:
        number: Which clinic.
        patients: How many it has.
        seed: Chooses the trial.
        effect: The true effect on the score.
        chunk: Patients in a batch.

    Example:
        >>> berlin, paris = (next(clinic(number, 200)) for number in (0, 1))
        >>> berlin["clinic"][0].as_py(), paris["clinic"][0].as_py(), paris.num_rows
        ('c00', 'c01', 200)
    """
    place = np.random.default_rng([seed, number])
    level, age, spread = place.normal(0, 4), place.normal(60, 6), place.uniform(6, 12)

    def drawn(start: int, n: int) -> pa.RecordBatch:
        rng = np.random.default_rng([seed, number, start, 1])
        # As for `checkout`: every draw is of full length.
        arm = rng.integers(0, 2, _USERS)[:n]
        years = np.clip(rng.normal(age, 12, _USERS)[:n], 18, 99).round()
        baseline = 50 + level + rng.normal(0, 8, _USERS)[:n]
        noise = rng.standard_normal(_USERS)[:n]
        score = 15 + effect * arm + 0.7 * baseline - 0.1 * (years - 60) + spread * noise
        return pa.record_batch(
            {
                "arm": pa.array(_ARMS[arm]),
                "score": pa.array(score),
                "baseline": pa.array(baseline),
                "age": pa.array(years),
                "clinic": pa.array([f"c{number:02d}"] * n),
                "patient": pa.array([f"c{number:02d}-p{i:06d}" for i in range(start, start + n)]),
            }
        )

    return _in_batches(drawn, patients, chunk)


def _in_batches(drawn: Callable[[int, int], pa.RecordBatch], n: int, rows: int) -> Iterator[pa.RecordBatch]:
    """The records of n users in batches of `rows`; `drawn` gives those from one on, so many of them."""
    held: list[pa.RecordBatch] = []
    for start in range(0, n, _USERS):
        held.append(drawn(start, min(_USERS, n - start)))
        while sum(batch.num_rows for batch in held) >= rows:
            table = pa.Table.from_batches(held)
            yield table.slice(0, rows).combine_chunks().to_batches()[0]
            held = table.slice(rows).to_batches()
    if held:
        yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]
