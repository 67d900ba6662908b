"""The paper's algorithms as published: readable, slow, and the oracle for the rest of foldaway.

W. Chou, "Randomized Controlled Trials without Data Retention". Equations are numbered in the order in which
they appear there. The Appendix is not part of the text at hand, so its two results (weighted recursive least
squares, recursive heteroscedasticity-robust errors) are derived in the docstrings below.

One name, one meaning: ``X`` has a row of k features per record, the intercept among them; ``y`` are outcomes;
``d`` is 1 for a treated record, 0 for a control; ``probability`` is that of treatment; ``w`` is a weight per
record, ``weights`` a vector of B bootstrap weights per record; ``start`` is m, the records that begin a fit.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldaway.errors import EstimateError

Array: TypeAlias = NDArray[np.float64]
Number = TypeVar("Number", float, Array)
Cluster = TypeVar("Cluster")


class RecursiveLeastSquares(NamedTuple):
    """What recursive least squares keeps between two records.

    Attributes:
        coef: The coefficients, k numbers.
        bread: The inverse of X'X (weighted: of X'WX), k by k.
        S: The (weighted) sum of squared residuals at ``coef``.
        n: The number of records (weighted: the sum of their weights, as in Eq. 16).
    """

    coef: Array
    bread: Array
    S: float
    n: float


# Proposed Methodology


def recursive_mean(z: Iterable[float]) -> float:
    """The mean of a stream, one value at a time (Eq. 3).

    Example:
        >>> recursive_mean([1.0, 2.0, 6.0])
        3.0
    """
    mean = 0.0
    for t, z_t in enumerate(z, start=1):
        mean += (z_t - mean) / t
    return float(mean)


def recursive_mean_batch(mean: float, count: int, batch: ArrayLike) -> float:
    """The mean of ``count`` values updated with a batch of further values (footnote to Eq. 3).

    Example:
        >>> recursive_mean_batch(3.0, 3, [7.0, 11.0, 3.0])
        5.0
    """
    batch = np.asarray(batch, dtype=np.float64)
    t, t_new = count, count + batch.size
    return float(mean + (batch.sum() - (t_new - t) * mean) / t_new)


def ipw(y: Number, d: Number, probability: float) -> Number:
    """The inverse-probability-weighted outcome z_i, whose mean estimates the PATE (summand of Eq. 4).

    The rest of foldaway calls that mean ``horvitz_thompson``.

    Example:
        >>> ipw(2.0, 1.0, probability=0.5), ipw(1.0, 0.0, probability=0.5)
        (4.0, -2.0)
    """
    return d * y / probability - (1 - d) * y / (1 - probability)


def pate(y: Iterable[float], d: Iterable[float], probability: float) -> float:
    """The population average treatment effect, as the recursive mean of z_i (Eqs. 3 and 4).

    Example:
        >>> pate([5.0, 1.0, 7.0, 3.0], [1, 0, 1, 0], probability=0.5)
        4.0
    """
    return recursive_mean(ipw(y_i, d_i, probability) for y_i, d_i in zip(y, d, strict=True))


# Recursive Linear Regression for RCTs


def _batch_least_squares(X: Array, y: Array, w: Array) -> RecursiveLeastSquares:
    if X.size == 0 or np.linalg.matrix_rank(X * np.sqrt(w)[:, None]) < X.shape[1]:
        raise EstimateError("The starting records do not identify every coefficient: start from more.")
    bread: Array = np.linalg.inv(X.T @ (w[:, None] * X)).astype(np.float64)
    coef = bread @ (X.T @ (w * y))
    return RecursiveLeastSquares(coef, bread, float(w @ (X @ coef - y) ** 2), float(w.sum()))


def recursive_least_squares(X: Array, y: Array, start: int) -> RecursiveLeastSquares:
    """Least squares, one record at a time (Algorithm 1).

    The paper allows any m >= 0, but the first m records must identify all k coefficients.

    Example:
        >>> X = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        >>> fit = recursive_least_squares(X, np.array([1.0, 4.0, 3.0, 6.0]), start=2)
        >>> fit.coef.round(9), round(fit.S, 9), fit.n
        (array([2., 3.]), 4.0, 4.0)
    """
    coef, bread, S, n = _batch_least_squares(X[:start], y[:start], np.ones(len(X[:start])))
    for x_i, y_i in zip(X[start:], y[start:], strict=True):
        gain = 1 + x_i @ bread @ x_i
        S += (x_i @ coef - y_i) ** 2 / gain  # Eq. 15: the coefficients from before this record
        bread = bread - bread @ np.outer(x_i, x_i) @ bread / gain  # Eq. 13
        coef = coef + bread @ x_i * (y_i - x_i @ coef)  # Eq. 12: the bread from after it
        n += 1
    return RecursiveLeastSquares(coef, bread, float(S), n)


def iid_covariance(fit: RecursiveLeastSquares) -> Array:
    """The covariance of the coefficients under i.i.d. errors (Eq. 10).

    The residual variance is S/(n-k-1) as published (Eq. 11), though k already counts the intercept. The rest
    of foldaway divides by n-k, as regression packages do.

    Example:
        >>> iid_covariance(RecursiveLeastSquares(np.zeros(2), np.eye(2), S=14.0, n=10.0))
        array([[2., 0.],
               [0., 2.]])
    """
    k = len(fit.coef)
    return fit.bread * (fit.S / (fit.n - k - 1))


# Bootstrap Inference for Recursive Estimation


def weighted_recursive_mean(z: Iterable[float], w: Iterable[float]) -> float:
    """The weighted mean of a stream, one value at a time (Eq. 16); zero if nothing has weight.

    Example:
        >>> weighted_recursive_mean([4.0, 100.0, -2.0], [1.0, 0.0, 2.0])
        0.0
    """
    mean, n = 0.0, 0.0
    for z_t, w_t in zip(z, w, strict=True):
        n += w_t
        if w_t != 0:
            mean += w_t / n * (z_t - mean)
    return float(mean)


def bootstrap_pate(y: Iterable[float], d: Iterable[float], probability: float, weights: Iterable[ArrayLike]) -> Array:
    """The online bootstrap for the PATE (Algorithm 2), with weights given; the paper draws Poisson(1).

    Returns:
        The B replicates. One that gave weight to no record stays at zero.

    Example:
        The paper's worked example:

        >>> bootstrap_pate([2.0, 1.0], [1, 0], 0.5, weights=[[1, 2, 0], [2, 1, 1]])
        array([ 0.,  2., -2.])
    """
    mean, n = np.zeros(1), np.zeros(1)  # broadcast to B by the first weights
    for y_i, d_i, weights_i in zip(y, d, weights, strict=True):
        z_i = ipw(y_i, d_i, probability)
        w_i = np.asarray(weights_i, dtype=np.float64)
        n = n + w_i
        # Eq. 16, both cases: no step where w is zero, since n may still be zero there.
        step = np.divide(w_i, n, out=np.zeros_like(w_i), where=w_i != 0)
        mean = mean + step * (z_i - mean)
    return mean


def weighted_recursive_least_squares(X: Array, y: Array, w: Array, start: int) -> RecursiveLeastSquares:
    """Weighted least squares, one record at a time (Appendix).

    Minimising sum w_i (y_i - x_i'b)^2 is least squares on sqrt(w_i) x_i and sqrt(w_i) y_i. Put these into
    Eqs. 12, 13 and 15: the roots pair up, and each product keeps one w_i. So a weight of zero changes nothing
    and an integer weight repeats its record. ``bread`` and ``coef`` move as in Algorithm 3.

    Example:
        >>> X = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        >>> y, w = np.array([1.0, 4.0, 4.0, 7.0]), np.array([1.0, 1.0, 2.0, 0.0])
        >>> fit = weighted_recursive_least_squares(X, y, w, start=2)
        >>> fit.coef.round(9), round(fit.S, 9), fit.n
        (array([3., 1.]), 6.0, 4.0)
    """
    coef, bread, S, n = _batch_least_squares(X[:start], y[:start], w[:start])
    for x_i, y_i, w_i in zip(X[start:], y[start:], w[start:], strict=True):
        gain = 1 + w_i * x_i @ bread @ x_i
        S += w_i * (x_i @ coef - y_i) ** 2 / gain
        bread = bread - w_i * bread @ np.outer(x_i, x_i) @ bread / gain
        coef = coef + bread @ (w_i * x_i) * (y_i - x_i @ coef)
        n += w_i
    return RecursiveLeastSquares(coef, bread, float(S), float(n))


def bootstrap_least_squares(X: Array, y: Array, weights: Iterable[ArrayLike], start: int) -> Array:
    """The online bootstrap for weighted recursive least squares (Algorithm 3), with weights given.

    All B recursions begin at the unweighted fit of the same m records. That part never varies, so the
    replicates understate the variance, the less the larger n is next to m.

    Args:
        X: Features, n by k.
        y: Outcomes, n.
        weights: B weights for each of the n-m records after the start.
        start: m.

    Returns:
        The replicates of the coefficients, B by k.

    Example:
        >>> X = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        >>> y = np.array([1.0, 4.0, 4.0, 7.0])
        >>> bootstrap_least_squares(X, y, weights=[[0, 2], [0, 0]], start=2).round(9)
        array([[1., 3.],
               [3., 1.]])
    """
    first = _batch_least_squares(X[:start], y[:start], np.ones(len(X[:start])))
    coef, Z = first.coef[None], first.bread[None]  # broadcast to B by the first weights
    weights = list(weights)
    if len(weights) != len(X) - start:
        raise EstimateError(f"`weights` must have B weights for each of the {len(X) - start} records after the start.")
    for x_i, y_i, weights_i in zip(X[start:], y[start:], weights, strict=True):
        w_i = np.asarray(weights_i, dtype=np.float64)[:, None]
        Zx = Z @ x_i
        Z = Z - (w_i * Zx / (1 + w_i * (Zx @ x_i)[:, None]))[:, :, None] * Zx[:, None, :]
        coef = coef + Z @ x_i * w_i * (y_i - coef @ x_i)[:, None]
    return coef


# Bootstrap Inference with Dependent Data


def cluster_bootstrap_pate(
    y: Iterable[float],
    d: Iterable[float],
    cluster: Iterable[Cluster],
    probability: float,
    draw: Callable[[Cluster], ArrayLike],
) -> Array:
    """The online cluster bootstrap for the PATE (Algorithm 4): Algorithm 2 with weights by cluster.

    ``cluster`` names the cluster j[i] of each record, ``draw`` gives a cluster's B weights, the same at every
    call. The paper seeds with the bare identifier, so whoever knows it can redraw the weights; the rest of
    foldaway keys them with a secret.

    Example:
        >>> draw = {"ann": [1, 2, 0], "bob": [2, 1, 1]}.__getitem__
        >>> cluster_bootstrap_pate([1.0, 1.0, 1.0], [1, 0, 1], ["ann", "bob", "ann"], 0.5, draw).round(9)
        array([ 0. ,  1.2, -2. ])
    """
    return bootstrap_pate(y, d, probability, weights=(draw(j) for j in cluster))


def cluster_bootstrap_least_squares(
    X: Array, y: Array, cluster: Iterable[Cluster], draw: Callable[[Cluster], ArrayLike], start: int
) -> Array:
    """The online cluster bootstrap for regression: Algorithm 3 with the weights of Algorithm 4.

    The paper claims this extension in "Experimentation Without Data Retention" and prints no algorithm.

    Example:
        >>> X = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        >>> y, draw = np.array([1.0, 4.0, 4.0, 7.0]), {"c": [0, 2], "d": [0, 0]}.__getitem__
        >>> cluster_bootstrap_least_squares(X, y, "abcd", draw, start=2).round(9)
        array([[1., 3.],
               [3., 1.]])
    """
    return bootstrap_least_squares(X, y, (draw(j) for j in islice(cluster, start, None)), start)


# Appendix: heteroscedasticity-robust errors


def robust_covariance(X: Array, y: Array) -> Array:
    """The heteroscedasticity-robust covariance (HC0) in one pass (Appendix).

    The meat sum x x' e^2 needs residuals at the final coefficients b, known only when every record is gone.
    But e^2 = (y - x'b)^2 is a polynomial in b, its coefficients are moments, and moments are running sums:

        sum x x' e^2 = P - 2 sum_c b_c Q[.., c] + sum_cd b_c b_d R[.., c, d]
        P = sum x x' y^2,   Q = sum x x' (x_c y),   R = sum x x' (x_c x_d)

    The price: some k^4 numbers, and the digits the subtraction loses when y is large next to its residuals.

    Example:
        Two arms: the variance of the difference is sum e^2 / n_arm^2, added over the arms.

        >>> X = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
        >>> robust_covariance(X, np.array([1.0, 3.0, 2.0, 8.0])).round(9)
        array([[ 0.5, -0.5],
               [-0.5,  5. ]])
    """
    k = X.shape[1]
    xx, xy = np.zeros((k, k)), np.zeros(k)
    P, Q, R = np.zeros((k, k)), np.zeros((k, k, k)), np.zeros((k, k, k, k))
    for x_i, y_i in zip(X, y, strict=True):
        outer = np.outer(x_i, x_i)
        xx += outer
        xy += x_i * y_i
        P += outer * y_i**2
        Q += np.multiply.outer(outer, x_i * y_i)
        R += np.multiply.outer(outer, outer)
    bread = np.linalg.inv(xx)
    coef = bread @ xy
    meat = P - 2 * Q @ coef + R @ coef @ coef
    return np.asarray(bread @ meat @ bread)


# Federated Computation of Cluster-Robust Standard Errors


def client_score(X: Array, y: Array, coef: Array) -> Array:
    """The client's half of Algorithm 5: its score u_j at the coefficients that the server pushed.

    The paper's residual is prediction minus outcome; the sign cancels on the server. A client with one record
    gives that record away.

    Example:
        >>> client_score(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([1.0, 5.0]), coef=np.array([2.0, 1.0]))
        array([-1., -2.])
    """
    e = X @ coef - y
    return np.asarray(X.T @ e)


def federated_covariance(bread: Array, scores: Iterable[Array]) -> Array:
    """The server's half of Algorithm 5: the cluster-robust covariance from the clients' scores (Eqs. 17, 18).

    Eq. 17 read literally is zero, since X'e = 0 at the least-squares fit; the sum by cluster is meant.

    Example:
        >>> federated_covariance(np.eye(2) / 2, [np.array([1.0, 1.0]), np.array([-1.0, 3.0])])
        array([[ 0.5, -0.5],
               [-0.5,  2.5]])
    """
    meat = np.zeros_like(bread)
    for u_j in scores:
        meat += np.outer(u_j, u_j)
    return np.asarray(bread @ meat @ bread)


def delta_variance_published(sizes: ArrayLike, sums: ArrayLike) -> float:
    """The delta-method variance of a mean over clusters, as published (Eq. 19): see ``delta_variance``.

    Example:
        >>> delta_variance_published(sizes=[2, 2], sums=[2.0, 6.0])
        1.0
    """
    n, s = np.asarray(sizes, dtype=np.float64), np.asarray(sums, dtype=np.float64)
    J, n_mean, s_mean = len(n), n.mean(), s.mean()
    # Divided by J, where the paper leaves J or J-1 open: so delta_variance equals Algorithm 5 exactly.
    (var_n, cov), (_, var_s) = np.cov(n, s, bias=True)
    bracket = var_s + s_mean**2 / n_mean**2 * var_n - 2 * s_mean / n_mean * cov
    return float(bracket / (J * n_mean))


def delta_variance(sizes: ArrayLike, sums: ArrayLike) -> float:
    """The delta-method variance of a mean over clusters, leading factor of Eq. 19 put right: 1/(J nbar^2).

    The bracket is the mean over clusters of (s_j - n_j ybar)^2, the squared scores of a regression on an
    intercept. Algorithm 5 divides their sum by n^2 = J^2 nbar^2, hence their mean by J nbar^2; the published
    J nbar leaves the variance nbar times too large. For an effect, add the variances of the two arms.

    ``sizes`` are the clusters' numbers of records n_j, ``sums`` their sums of y, s_j.

    Example:
        Two clusters of equal size with means 1 and 3: half the variance of these means.

        >>> delta_variance(sizes=[2, 2], sums=[2.0, 6.0])
        0.5
    """
    return delta_variance_published(sizes, sums) / float(np.asarray(sizes, dtype=np.float64).mean())
