# mypy: ignore-errors
"""Power by other packages, for `tests/planning/test_power.py`: python make.py > peers.json

Needs statsmodels 0.15.0 and tea-tasting 1.14.0, in an environment of its own. gbstats 0.8.0, the newest on the package
index, has no power calculation. Its later one is the normal formula of `NormalIndPower`; where looks go on, it counts
the last look alone, so that its power is below that of a trial that may stop at any of them.
"""

import json
from itertools import product

from statsmodels.stats.power import NormalIndPower, TTestIndPower, normal_power_het
from statsmodels.stats.proportion import power_ztost_prop
from tea_tasting.aggr import Aggregates
from tea_tasting.metrics import Mean, RatioOfMeans

SIDES = {"two-sided": "two-sided", "greater": "larger"}


def t_tests():
    """Equal variances, and so, with equal arms, Welch's test too."""
    for size, n, ratio, alpha, side in product((0.2, 0.5), (12, 60, 200), (1, 3), (0.05, 0.01), SIDES):
        power = TTestIndPower().power(size, n, alpha, ratio=ratio, alternative=SIDES[side])
        yield {"size": size, "n": n, "ratio": ratio, "alpha": alpha, "alternative": side, "power": power}


def t_sizes():
    """Records of one arm, equal arms."""
    for size, power, alpha, side in product((0.05, 0.4), (0.8, 0.95), (0.05, 0.1), SIDES):
        n = TTestIndPower().solve_power(size, None, alpha, power, alternative=SIDES[side])
        yield {"size": size, "power": power, "alpha": alpha, "alternative": side, "n": float(n)}


def z_tests():
    for size, n, ratio, side in product((0.05, 0.3), (50, 3000), (1, 0.25), SIDES):
        power = NormalIndPower().power(size, n, 0.05, ratio=ratio, alternative=SIDES[side])
        yield {"size": size, "n": n, "ratio": ratio, "alternative": side, "power": power}


def shares():
    """Two shares, each with its own variance: nothing is pooled, as in Welch's test."""
    for (one, two), n, side in product(((0.1, 0.12), (0.5, 0.47)), (200, 5000), SIDES):
        deviation = (one * (1 - one) + two * (1 - two)) ** 0.5
        power = normal_power_het(two - one, n, 0.05, deviation, deviation, alternative=SIDES[side])
        yield {"control": one, "arm": two, "n": n, "alternative": side, "power": float(power)}


def equivalent():
    """One share within bounds, by two one-sided tests with the variance at the true share."""
    for p, reach, n in product((0.3, 0.32), (0.05, 0.08), (400, 2000)):
        power = power_ztost_prop(0.3 - reach, 0.3 + reach, n, p, 0.05, variance_prop=p, discrete=False)
        yield {"level": 0.3, "true": p, "reach": reach, "n": n, "power": float(power[0])}


def tea_tasting():
    """Means, means with a covariate, and ratios, with arms of unequal size."""
    mean = {"orders": 0.53, "sessions": 2.0, "before": 0.5}
    var = {"orders": 1.12, "sessions": 1.7, "before": 1.0}
    cov = {("orders", "sessions"): 0.8, ("before", "orders"): 0.62, ("before", "sessions"): 0.3}
    sample = Aggregates(count_=4000, mean_=mean, var_=var, cov_=cov)
    kinds = {
        "mean": lambda **s: Mean("orders", **s),
        "covariate": lambda **s: Mean("orders", "before", **s),
        "ratio": lambda **s: RatioOfMeans("orders", "sessions", **s),
    }
    for kind, ratio, side in product(kinds, (1, 0.25), ("two-sided", "greater", "less")):
        change = -0.1 if side == "less" else 0.1
        about = {"ratio": ratio, "alternative": side, "alpha": 0.05, "power": 0.8}
        of = {
            parameter: kinds[kind](
                rel_effect_size=effect, n_obs=None if parameter == "n_obs" else 4000, **about
            ).solve_power_from_aggregates(sample, parameter)[0]
            for parameter, effect in (("power", change), ("n_obs", change), ("rel_effect_size", None))
            if ratio == 1 or parameter != "n_obs"  # its search meets an arm of less than one record, and ends in NaN
        }
        yield {
            "kind": kind,
            "ratio": ratio,
            "alternative": side,
            "relative": change,
            "power": of["power"].power,
            "n_obs": of["n_obs"].n_obs if ratio == 1 else None,
            "smallest": of["rel_effect_size"].effect_size,
        }


if __name__ == "__main__":
    made = {each.__name__: list(each()) for each in (t_tests, t_sizes, z_tests, shares, equivalent, tea_tasting)}
    print(
        "{\n"
        + ",\n".join(f'"{k}": [\n' + ",\n".join(json.dumps(r) for r in v) + "\n]" for k, v in made.items())
        + "\n}"
    )
