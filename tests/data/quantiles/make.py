# mypy: ignore-errors
"""Quantile effects by other packages, for `tests/test_trial_quantiles.py`: python make.py > peers.json

Needs tea-tasting 1.14.0 and gbstats 0.8.0, in an environment of its own (pyarrow below 20, for NumPy 1.26).
tea-tasting takes NumPy's quantiles of kept rows and resamples these, each as if independent. gbstats is given the
quantile and two more, 1.96 standard errors of the distribution function to either side, and for clustered records sums
over users; it reads them like foldaway, but for the scale on which the ends are chosen.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import tea_tasting as tt
from gbstats.frequentist.tests import FrequentistConfig, TwoSidedTTest
from gbstats.models.statistics import QuantileClusteredStatistic, QuantileStatistic
from scipy.stats import norm

sys.path.insert(0, str(Path(__file__).parents[2]))

from latencies import QUANTILES, latencies

Z = norm.ppf(0.975)


def statistic(rows, p, clustered):
    """What gbstats needs of an arm."""
    y, n = rows["latency_ms"].to_numpy(), len(rows)
    reach = Z * np.sqrt(p * (1 - p) / n)
    hat, lower, upper = np.quantile(y, [p, p - reach, p + reach])
    given = {"n": n, "n_star": n, "nu": p, "quantile_hat": hat, "quantile_lower": lower, "quantile_upper": upper}
    if not clustered:
        return QuantileStatistic(**given)
    users = pd.DataFrame({"user": rows["user"], "main": y <= hat, "many": 1}).groupby("user").sum()
    main, many = users["main"].to_numpy(float), users["many"].to_numpy(float)
    return QuantileClusteredStatistic(
        **given,
        main_sum=main.sum(),
        main_sum_squares=(main**2).sum(),
        denominator_sum=many.sum(),
        denominator_sum_squares=(many**2).sum(),
        main_denominator_sum_product=(main * many).sum(),
        n_clusters=len(users),
    )


def by_gbstats(table, p, clustered):
    arms = [statistic(table[table["variant"] == arm], p, clustered) for arm in ("control", "treatment")]
    found = TwoSidedTTest(*arms, FrequentistConfig(difference_type="absolute")).compute_result()
    lower, upper = found.ci
    return {
        "estimate": found.expected,
        "std_error": float(np.sqrt(sum(arm.variance / arm.n for arm in arms))),
        "ci": [lower, upper],
    }


def by_tea_tasting(table, p):
    metric = tt.Quantile("latency_ms", p, n_resamples=5000, rng=1)
    found = tt.Experiment({"latency": metric}, variant="variant").analyze(table, control="control")["latency"]
    return {
        "control": found.control,
        "treatment": found.treatment,
        "estimate": found.effect_size,
        "relative": found.rel_effect_size,
        "ci": [found.effect_size_ci_lower, found.effect_size_ci_upper],
    }


if __name__ == "__main__":
    table = pd.DataFrame(latencies())
    peers = {
        str(p): {
            "tea-tasting": by_tea_tasting(table, p),
            "gbstats": by_gbstats(table, p, clustered=False),
            "gbstats, clustered": by_gbstats(table, p, clustered=True),
        }
        for p in QUANTILES
    }
    print(json.dumps(peers, indent=2))
