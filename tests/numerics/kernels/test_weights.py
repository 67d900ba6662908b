from __future__ import annotations

from decimal import Decimal, localcontext
from math import factorial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy.special import chdtrc

from foldaway.numerics.kernels.philox import philox
from foldaway.numerics.kernels.siphash import hash_identifiers
from foldaway.numerics.kernels.weights import REST, REST_BOUNDS, WHOLE_CELLS, Kind
from sizes import mostly_slow
from written_weights import weights

KEY = b"a key for tests!"
UNITS = 8_000
REPLICATES = 512  # about four million weights

Words = NDArray[np.uint64]
Weights = NDArray[np.uint8]


def units(name: str, count: int = UNITS) -> Words:
    """Unit numbers as alike as units can be; the last three without the hash that would set them apart."""
    numbers = np.arange(count)
    match name:
        case "consecutive integers":
            return hash_identifiers(pa.array(numbers), KEY)
        case "near-identical texts":
            return hash_identifiers(pa.array([f"user-{number:012}@example.org" for number in numbers]), KEY)
        case "consecutive unit numbers":
            return numbers.astype(np.uint64)
        case "unit numbers that differ in high bits":
            return numbers.astype(np.uint64) << np.uint64(64 - 13)
        case "unit numbers in steps of the golden ratio":
            return numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    raise ValueError(name)


ALIKE = [
    "consecutive integers",
    "near-identical texts",
    "consecutive unit numbers",
    "unit numbers that differ in high bits",
    "unit numbers in steps of the golden ratio",
]
KINDS: list[Kind] = ["poisson", "double-or-nothing"]


def classes(kind: Kind, w: Weights) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Weights as a few classes, and the probability of each."""
    if kind == "poisson":
        law = np.array([np.exp(-1) / factorial(value) for value in range(3)])
        return np.minimum(w, 3), np.append(law, 1 - law.sum())
    return w // 2, np.array([0.5, 0.5])


def p_value(observed: NDArray[Any], expected: NDArray[Any], lost: int = 1) -> float:
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return float(chdtrc(observed.size - lost, statistic))


# Published with the Random123 library (kat_vectors): counter, key and output, as four, two and four 32-bit words.
PHILOX = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def long_words(text: str) -> list[np.uint64]:
    words = [int(word, 16) for word in text.split()]
    return [np.uint64(low | high << 32) for low, high in zip(words[::2], words[1::2], strict=True)]


@pytest.mark.parametrize(("counter", "key", "output"), PHILOX)
def test_published_philox_vectors(counter: str, key: str, output: str) -> None:
    block, stream = long_words(counter)
    assert list(philox(long_words(key)[0], block, stream)) == long_words(output)


def slow_stream(unit: int, stream: int, octets: int) -> bytes:
    """The octets of Philox4x32-10 under a 64-bit key, from Salmon et al. (2011), on Python integers."""
    out = b""
    block = 0
    while len(out) < octets:
        c = [block & 0xFFFFFFFF, block >> 32, stream, 0]
        k = [unit & 0xFFFFFFFF, unit >> 32]
        for _ in range(10):
            high_0, low_0 = divmod(0xD2511F53 * c[0], 2**32)
            high_1, low_1 = divmod(0xCD9E8D57 * c[2], 2**32)
            c = [high_1 ^ c[1] ^ k[0], low_1, high_0 ^ c[3] ^ k[1], low_0]
            k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
        out += b"".join(word.to_bytes(4, "little") for word in c)
        block += 1
    return out


SOME = [0, 1, 2**32, 2**64 - 1, 0x0123456789ABCDEF]


def test_double_or_nothing_is_bit_b_of_the_stream() -> None:
    table = weights(np.array(SOME, dtype=np.uint64), 300, "double-or-nothing")
    for unit, row in zip(SOME, table, strict=True):
        bits = int.from_bytes(slow_stream(unit, 1, 300 // 8 + 1), "little")
        assert row.tolist() == [2 * (bits >> b & 1) for b in range(300)]


def test_poisson_is_an_octet_of_the_stream_and_rarely_a_further_draw() -> None:
    table = weights(np.array(SOME, dtype=np.uint64), 640, "poisson")
    drawn_again = 0
    for unit, row in zip(SOME, table, strict=True):
        octets = np.frombuffer(slow_stream(unit, 2, 640), dtype=np.uint8).reshape(-1, 8, 8)
        for b, octet in enumerate(octets.transpose(0, 2, 1).ravel()):
            if octet >= 6:
                assert row[b] == np.searchsorted([100, 194, 241], octet, side="right")
            else:
                drawn_again += 1
                draw = int.from_bytes(slow_stream(unit, 3, 16 * (b + 1))[-16:][:8], "little")
                assert row[b] == sum(draw >= bound for bound in rest_bounds())
    assert drawn_again > 0


def poisson_probability(weight: int) -> Decimal:
    return (-Decimal(1)).exp() / factorial(weight)


def rest_bounds() -> list[int]:
    """Where the residual law steps up, by decimals instead of fractions."""
    with localcontext(prec=60):
        left = [256 * poisson_probability(weight) for weight in range(30)]
        left = [cells - int(cells) if weight < 4 else cells for weight, cells in enumerate(left)]
        return [round(2**64 * sum(left[: weight + 1]) / 6) for weight in range(29)]


def test_each_probability_is_exact_far_beyond_what_draws_could_show() -> None:
    with localcontext(prec=60):
        bounds = [0, *(int(bound) for bound in REST_BOUNDS), 2**64]
        for weight in range(len(bounds) - 1):
            cells = WHOLE_CELLS[weight] if weight < 4 else 0
            rest = Decimal(bounds[weight + 1] - bounds[weight]) * REST / 2**64
            assert abs((cells + rest) / 256 - poisson_probability(weight)) < Decimal(2) ** -66


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", mostly_slow(ALIKE, *ALIKE[:2]))
class TestMillionsOfDraws:
    def test_mean_and_variance_are_one(self, name: str, kind: Kind) -> None:
        w = weights(units(name), REPLICATES, kind).astype(np.float64)
        fourth = 4.0 if kind == "poisson" else 1.0  # E(w-1)⁴
        assert abs(w.mean() - 1) < 4.5 / np.sqrt(w.size)
        # The squared deviations of double-or-nothing weights do not vary at all.
        assert abs(((w - 1) ** 2).mean() - 1) <= 4.5 * np.sqrt((fourth - 1) / w.size)

    def test_the_law_by_chi_square(self, name: str, kind: Kind) -> None:
        w = weights(units(name), REPLICATES, kind)
        if kind == "poisson":
            law = np.array([np.exp(-1) / factorial(value) for value in range(8)])
            law = np.append(law, 1 - law.sum())
        else:
            law = np.array([0.5, 0.0, 0.5])
        counts = np.bincount(np.minimum(w, len(law) - 1).ravel(), minlength=len(law))
        possible = law > 0
        assert counts[~possible].sum() == 0
        assert p_value(counts[possible], w.size * law[possible]) > 1e-4

    @pytest.mark.parametrize("lag", mostly_slow([1, 2, 8, 16, 64, 128, 256], 1, 64))
    def test_neighbouring_replicates_are_independent(self, name: str, kind: Kind, lag: int) -> None:
        w, law = classes(kind, weights(units(name), REPLICATES, kind))
        assert self.joint_p_value(w[:, :-lag], w[:, lag:], law) > 1e-4

    @pytest.mark.parametrize("lag", mostly_slow([1, 2, 8, 64, 1024], 1))
    def test_neighbouring_units_are_independent(self, name: str, kind: Kind, lag: int) -> None:
        w, law = classes(kind, weights(units(name), REPLICATES, kind))
        assert self.joint_p_value(w[:-lag], w[lag:], law) > 1e-4

    def test_a_unit_and_the_replicates_beside_its_neighbour_s_are_independent(self, name: str, kind: Kind) -> None:
        w, law = classes(kind, weights(units(name), REPLICATES, kind))
        for lag in (1, 8, 16, 64):
            assert self.joint_p_value(w[:-1, :-lag], w[1:, lag:], law) > 1e-4

    def test_no_two_replicates_are_correlated(self, name: str, kind: Kind) -> None:
        self.assert_uncorrelated(weights(units(name), 256, kind))

    def test_no_two_units_are_correlated(self, name: str, kind: Kind) -> None:
        self.assert_uncorrelated(weights(units(name, 256), UNITS, kind).T)

    def test_three_replicates_or_units_together_are_independent(self, name: str, kind: Kind) -> None:
        w, law = classes(kind, weights(units(name), REPLICATES, kind))
        size = len(law)
        for a, b, c in ((w[:, :-2], w[:, 1:-1], w[:, 2:]), (w[:-2], w[1:-1], w[2:])):
            counts = np.bincount((a.astype(int) * size**2 + b * size + c).ravel(), minlength=size**3)
            expected = a.size * np.einsum("i,j,k->ijk", law, law, law).ravel()
            assert p_value(counts, expected) > 1e-4

    @staticmethod
    def joint_p_value(a: NDArray[Any], b: NDArray[Any], law: NDArray[np.float64]) -> float:
        size = len(law)
        counts = np.bincount((a.astype(int) * size + b).ravel(), minlength=size**2)
        return p_value(counts, a.size * np.outer(law, law).ravel())

    @staticmethod
    def assert_uncorrelated(w: Weights) -> None:
        n, m = w.shape
        z = w.astype(np.float64) - 1
        off = (z.T @ z)[np.triu_indices(m, 1)] / np.sqrt(n)  # standard normal when independent
        assert np.abs(off).max() < 6
        assert abs((off**2).mean() - 1) < 4.5 * np.sqrt(2 / off.size)


def test_eight_neighbouring_bits_take_every_pattern_equally_often() -> None:
    for name in ALIKE:
        bits = weights(units(name), REPLICATES, "double-or-nothing") // 2
        for run in (bits, bits.T):
            patterns = np.packbits(run[:, : run.shape[1] // 8 * 8], axis=1)
            counts = np.bincount(patterns.ravel(), minlength=256)
            assert p_value(counts, np.full(256, patterns.size / 256)) > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_every_replicate_and_every_unit_is_balanced(kind: Kind) -> None:
    w = weights(units("consecutive integers"), REPLICATES, kind).astype(np.float64)
    for axis in (0, 1):
        z = (w.mean(axis=axis) - 1) * np.sqrt(w.shape[axis])
        assert np.abs(z).max() < 5.5
        assert 1e-4 < chdtrc(z.size, float((z**2).sum())) < 1 - 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_one_turned_bit_of_a_unit_number_gives_unrelated_weights(kind: Kind) -> None:
    whole = np.uint64(0x5DEECE66D1234567)
    plain = weights(np.array([whole]), 20_000, kind)[0].astype(np.float64) - 1
    turned = weights(whole ^ (np.uint64(1) << np.arange(64, dtype=np.uint64)), 20_000, kind).astype(np.float64) - 1
    assert np.abs(turned @ plain).max() / np.sqrt(20_000) < 4.5


@pytest.mark.parametrize("kind", KINDS)
def test_a_unit_has_its_weights_wherever_it_stands(kind: Kind) -> None:
    hashes = units("near-identical texts", 300)
    order = np.random.default_rng(0).permutation(300)
    assert (weights(hashes[order], 77, kind) == weights(hashes, 77, kind)[order]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_weights_do_not_depend_on_how_many_there_are(kind: Kind) -> None:
    hashes = units("consecutive integers", 50)
    assert (weights(hashes, 1000, kind)[:, :333] == weights(hashes, 333, kind)).all()


def test_the_two_kinds_share_no_draws() -> None:
    hashes = units("consecutive integers", 2000)
    a, b = (weights(hashes, 256, kind).astype(np.float64) - 1 for kind in KINDS)
    assert abs((a * b).mean()) < 4.5 / np.sqrt(a.size)


def test_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="double-or-nothing"):
        weights(np.zeros(1, dtype=np.uint64), 1, "exponential")  # type: ignore[arg-type]
