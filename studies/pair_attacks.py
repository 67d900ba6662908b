"""Can one server of mode shares tell two devices apart, with all that it has and what the other publishes?

Two devices of one arm and group have opposite values, and a coin says which has which. The attacker has one server's
plaintext halves, its state, and the sums that the other server publishes at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from foldaway.federated.summands.publishing import publish
from foldaway.federated.summands.summands import Half, Summands
from foldaway.federated.summands.words import SEED, Words, count_of, expanded, fixed, read, split, unpacked
from studies.findings import Findings, options_of
from studies.findings import publish as write
from two_servers import shared

NAME = "pair_attacks"
VALUE = 90.0


def study(tries: int, seed: int) -> dict[str, float]:
    """By attacker and what is compared, how often the right device was named."""
    rng = np.random.default_rng(seed)
    plan = shared(cohort=2, smallest_cell=2, expected_units=64)
    count = count_of(plan)

    def device(y: float, arm: int, group: int, number: int) -> tuple[Half, Half]:
        drawn, name = rng.bytes(SEED), number.to_bytes(16, "big")
        words = unpacked(split(fixed(plan, 1, np.array([y])), drawn), count)
        return Half(name, arm, group, words), Half(name, arm, group, expanded(drawn, count))

    others = Summands(plan), Summands(plan)
    for place in range(4 * plan.groups):
        for server, half in zip(
            others, device(rng.uniform(-100, 100), place % 2, place // 2 % plan.groups, place), strict=True
        ):
            server.add([half])
    right: dict[str, int] = {}
    for _ in range(tries):
        first = bool(rng.integers(2))
        two = [device(VALUE if is_it else -VALUE, 0, 3, 10**6 + i) for i, is_it in enumerate((first, not first))]
        servers = [each.copy() for each in others]
        for halves in two:
            for server, half in zip(servers, halves, strict=True):
                server.add([half])
        for own, name in enumerate(("leader", "helper")):
            told = unpacked(publish(plan, servers[1 - own]).words, 2 * plan.groups * count).reshape(2, -1, count)[0, 3]
            mine: list[Words] = [halves[own].words for halves in two]
            left = [servers[own].words[0, 3] + told - words for words in mine]
            compared: dict[str, Sequence[Any]] = {
                "its halves": mine,
                "its halves, as signed numbers": [words.astype(np.int64) for words in mine],
                "their last digits": [words % np.uint64(2) for words in mine],
                "both sums less its half": left,
                "the other's sum less its half": [told - words for words in mine],
            }
            for what, (a, b) in compared.items():
                guess = bool(a[1] > b[1]) if a[1] != b[1] else bool(rng.integers(2))
                right[f"{name}: {what}"] = right.get(f"{name}: {what}", 0) + (guess == first)
        _, (mine_is,) = read(plan, two[0][0].words + two[0][1].words)
        right["both servers"] = right.get("both servers", 0) + ((mine_is > 0) == first)
    return {what: count / tries for what, count in right.items()}


def findings(found: dict[str, float], tries: int) -> Findings:
    """The table and what it says."""
    chance = 196 * (0.25 / tries) ** 0.5
    return Findings(
        "One server's view of two devices",
        f"""Two devices of the same arm and group have the values {VALUE:g} and −{VALUE:g}; a coin says which has which.
        The attacker names the one with the larger value, {tries:,} times. It has all that one server ever has of
        them: the opened halves, its sums, and what the other server publishes at the end. It compares the two in
        several ways. Whoever has both servers' halves is right every time, so the attack would notice.""",
        ["attacker, and what it compares", "right, %"],
        [[what, f"{100 * share:.1f}"] for what, share in found.items()],
        f"""Of {tries:,} guesses by a coin, 50 % are right, give or take {chance:.1f} in 95 of 100 studies.""",
    )


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, tries=10_000, seed=1)
    write(findings(study(options.tries, options.seed), options.tries), NAME, options)
