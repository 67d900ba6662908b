"""The vectors that clients are held to: they are those of this server, and it takes every message in them."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import foldaway as fa
from foldaway.errors import MessageError
from foldaway.federated.messages import Enrolment, decoded, packed
from foldaway.federated.modes import mode_of, most_bytes
from foldaway.federated.modes.share import ServerShare
from foldaway.federated.summands.sealing import KeyPair
from hpke import private_key
from protocol_vectors import FILE, written

# Words that linear algebra has a part in, whose last digits differ from machine to machine.
COMPUTED = {"factor", "scores", "frame", "deltas", "sums"}

FOUND: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


def same(found: Any, expected: Any, name: str = "") -> bool:
    if name in COMPUTED and isinstance(found, str):
        numbers, others = (np.frombuffer(b64decode(each), "<f8") for each in (found, expected))
        return len(numbers) == len(others) and np.allclose(numbers, others, rtol=1e-9, atol=1e-9)
    if isinstance(found, dict) and isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[key], expected[key], key) for key in found)
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(same(*pair, name) for pair in zip(found, expected, strict=True))
    return bool(found == expected)


def test_the_file_is_that_of_this_server() -> None:
    assert same(FOUND, json.loads(written())), "make vectors"


def test_a_file_that_differs_is_noticed() -> None:
    for change in ({"n": 4}, {"factor": b64encode(packed(np.array([1.0, 2.0, 3.0]))).decode()}):
        changed = deepcopy(FOUND)
        changed["cases"][0]["devices"][0]["report"] |= change
        assert not same(changed, FOUND)


@pytest.mark.parametrize("case", FOUND["cases"], ids=lambda case: str(case["case"]))
def test_the_server_takes_every_message(case: dict[str, Any]) -> None:
    plan = fa.Plan.loads(case["plan"])
    assert (plan.fingerprint, plan.canonical().decode()) == (case["fingerprint"], case["plan"])
    mode, share = mode_of(plan), ServerShare.of(plan)
    keys = {role: KeyPair(private_key(b64decode(key))) for role, key in case.get("private_keys", {}).items()}
    for device in case["devices"]:
        assert decoded(json.dumps(device["enrolment"]).encode(), Enrolment).arm in plan.arms
        kind = next(name for name in ("moments", "report") if name in device and "scores" not in device[name])
        # Other clients may write blanks, and escape what is not ASCII.
        sent = json.dumps(device[kind], indent=1).encode()
        assert len(sent) <= most_bytes(plan)
        message = decoded(sent, type(mode.longest(plan)[0]))
        mode.fold(share, [message], [mode.check(share, message, None)], None)
        for role, half in (("leader", "leaders_half"), ("helper", "seed")) if keys else ():
            opened = keys[role].open(getattr(message, role), b64decode(device["info"][role]))
            assert opened == b64decode(device[half])
        with pytest.raises(MessageError):
            decoded(json.dumps({**device[kind], "more": 1}).encode(), type(mode.longest(plan)[0]))
        if mode.withdraws:  # by the same bytes
            share.out = share.out or ServerShare.of(plan)
            mode.fold(share.out, [message], [mode.numbers(plan, message)], None)
    assert sum(share.devices) == len(case["devices"])
    assert share.settled().n == (0 if mode.withdraws else share.n)
