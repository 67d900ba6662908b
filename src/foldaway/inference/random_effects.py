"""The mean effect over sites, where sites are a sample: random effects, with the interval of Hartung and Knapp.

Site s has the effect y_s with the variance v_s. With τ² the variance of true effects between sites and
w_s = 1/(v_s + τ²), the mean is Σ w y / Σ w. Its error is that of Hartung and Knapp (2001), with k − 1 degrees of
freedom:

    V = Σ w (y − mean)² / ((k − 1) Σ w)

τ² is that of restricted maximum likelihood (Viechtbauer 2005). Q and I² are Cochran's and Higgins and Thompson's
(2002). All of them are as in R's metafor (`rma(…, test = "knha")`).
"""

from __future__ import annotations

import msgspec
import numpy as np

from foldaway.inference.intervals import critical
from foldaway.numerics.block import Floats

# Steps of Fisher scoring, and next to the effects' variance how small the last one is.
_MOST_STEPS, _SETTLED = 1_000, 1e-13


class RandomEffects(msgspec.Struct, frozen=True):
    """The mean effect over sites like these, and how much sites differ.

    Attributes:
        estimate: The mean effect.
        std_error: Hartung's and Knapp's.
        ci_lower: Where its interval begins.
        ci_upper: Where it ends.
        p_value: Of the test that it is 0.
        tau2: The variance of effects between sites.
        i2: Of the variance of the sites' estimates, the share that lies between sites.
        q: Cochran's Q.
        q_p_value: How rare so large a Q is where all sites have one effect.
        sites: How many sites there are.
    """

    estimate: float
    std_error: float
    ci_lower: float
    ci_upper: float
    p_value: float
    tau2: float
    i2: float
    q: float
    q_p_value: float
    sites: int

    def scaled(self, by: float) -> RandomEffects:
        """Those of effects that are so many times as large."""
        own = {name: by * getattr(self, name) for name in ("estimate", "std_error", "ci_lower", "ci_upper")}
        return msgspec.structs.replace(self, tau2=by**2 * self.tau2, **own)


def random_effects(effects: Floats, variances: Floats, confidence: float = 0.95) -> RandomEffects:
    """The mean effect over sites.

    Args:
        effects: Two or more sites' effects.
        variances: Their variances, above 0.
        confidence: Of the interval.

    Example:
        >>> found = random_effects(np.array([0.1, 0.9]), np.array([0.02, 0.05]))
        >>> round(found.tau2, 3), round(found.i2, 3), found.sites
        (0.285, 0.891, 2)
    """
    from scipy.special import chdtrc, stdtr

    y, v = np.asarray(effects, dtype=np.float64), np.asarray(variances, dtype=np.float64)
    k, tau2 = len(y), _between(y, v)
    weights = 1 / (v + tau2)
    mean = weights @ y / weights.sum()
    error = float(np.sqrt(weights @ (y - mean) ** 2 / ((k - 1) * weights.sum())))
    own = 1 / v
    q = float(own @ (y - own @ y / own.sum()) ** 2)
    typical = (k - 1) * own.sum() / (own.sum() ** 2 - own @ own)
    away = critical(confidence, k - 1) * error
    p_value = 2 * stdtr(k - 1, -abs(mean) / error) if error > 0 else float(mean == 0)
    ends = float(mean - away), float(mean + away)
    heterogeneity = tau2, float(tau2 / (tau2 + typical)), q, float(chdtrc(k - 1, q))
    return RandomEffects(float(mean), error, *ends, float(p_value), *heterogeneity, k)


def _between(y: Floats, v: Floats) -> float:
    """τ² of restricted maximum likelihood, 0 at the least, by Fisher scoring.

    With P = W − W 1 1' W / Σw, a step is (y'PPy − tr P) / tr PP.
    """
    tau2 = max(float(np.var(y, ddof=1) - v.mean()), 0.0)
    settled = _SETTLED * float(np.var(y, ddof=1))
    for _ in range(_MOST_STEPS):
        w = 1 / (v + tau2)
        away = w * (y - w @ y / w.sum())
        trace, squared = w.sum() - w @ w / w.sum(), w @ w - 2 * w @ w**2 / w.sum() + (w @ w / w.sum()) ** 2
        step = float((away @ away - trace) / squared)
        step = max(step, -tau2)
        tau2 += step
        if abs(step) <= settled:
            break
    return tau2
