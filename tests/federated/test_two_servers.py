"""Two servers that add halves up: what they take, what they refuse, and what each of them publishes."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldaway as fa
from devices import device_in, wait_for
from foldaway.effects.door import OWN
from foldaway.errors import IngestError, MessageError, PlanError, Unavailable
from foldaway.federated.coordinator.ending import EndRequest
from foldaway.federated.messages import Closing, ReportBatch, SplitSums
from foldaway.federated.modes.share import Devices, ServerShare
from foldaway.federated.modes.shares import SumsInShares
from foldaway.federated.summands.publishing import joined, publish
from foldaway.federated.summands.sealing import KeyPair
from foldaway.federated.summands.summands import Half, Summands
from foldaway.federated.summands.words import SEED, count_of, expanded, fixed, read, split, unpacked
from foldaway.plan.fixed_point import bits_of
from foldaway.service.collecting.device_endings import closed
from foldaway.service.collecting.device_trials import DeviceTrials
from foldaway.service.collecting.pair import Pair
from foldaway.tallies.release import noise_of
from foldaway_device import Device, ServerError
from in_process import DirectLink
from two_servers import KEYS, OneServer, TwoServers, shared

SMALL: dict[str, Any] = {"cohort": 8, "smallest_cell": 1, "expected_units": 40}


def report(link: DirectLink, arm: str | None = None, y: float = 1.0) -> Device:
    """A device that has reported one record."""
    device = device_in(link.plan, arm, link)
    device.record({"y": y})
    wait_for(device)
    device.report()
    return device


# Numbers.


@given(st.lists(st.tuples(st.floats(-100, 100), st.binary(min_size=SEED, max_size=SEED)), min_size=1, max_size=20))
def test_halves_add_up_to_the_sums(devices: list[tuple[float, bytes]]) -> None:
    plan = shared()
    leader, helper = np.zeros(2, dtype=np.uint64), np.zeros(2, dtype=np.uint64)
    for y, seed in devices:
        leader += unpacked(split(fixed(plan, 3, np.array([y])), seed), count_of(plan))
        helper += expanded(seed, count_of(plan))
    n, (total,) = read(plan, leader + helper)
    assert n == 3 * len(devices)
    assert abs(total - sum(y for y, _ in devices)) <= len(devices) * 2.0 ** -bits_of(plan)[0]


@given(st.floats(1e-3, 1e9), st.integers(1, 1000), st.integers(100, 10**8))
def test_twice_the_devices_at_the_bounds_do_not_overflow(most: float, records: int, devices: int) -> None:
    plan = shared(outcomes=[fa.Mean("y", bounds=(-most, most))], device_records=records, expected_units=devices)
    _, word = fixed(plan, records, np.array([records * most])).tolist()
    assert 2**60 <= word * devices < 2**62
    _, (total,) = read(plan, np.array([0, 2 * devices * word % 2**64], dtype=np.uint64))
    assert total == pytest.approx(2.0 * devices * records * most, rel=1e-6)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"outcomes": ["y"]}, "needs `bounds` for every column"),
        ({"expected_units": None}, "add `expected_units`"),
        ({"device_records": 10**9, "expected_units": 10**9}, "could overflow 64 bits"),
        ({"outcomes": [fa.Mean("y", bounds=(1e9, 1e9 + 1))], "expected_units": 10**8}, "could overflow 64 bits"),
        ({"keys": ["A" * 88, "B" * 88]}, "`federated.servers.key` must be 88 characters"),
        ({"urls": ("https://one.example", "https://one.example")}, "an address and a key of its own"),
        ({"urls": ("https://one.example/path", "https://two.example")}, "without a path"),
        ({"unit": "user"}, "`unit` is for sites"),
        ({"federated": {"mode": "shares"}}, "`federated.servers`: first the leader"),
        ({"federated": {"mode": "sums", "servers": [{"url": "http://a", "key": "B" * 87 + "="}]}}, "leave them out"),
    ],
)
def test_plans_that_cannot_be_added_up_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        shared(**change)


# Batches.


def test_a_half_that_the_helper_cannot_open_is_left_out_by_both(tmp_path: Path) -> None:
    both = TwoServers(tmp_path, shared(**SMALL))
    link = DirectLink(both.leader.trials, both.plan)
    bad = device_in(both.plan, None, link)
    bad.record({"y": 1.0})
    wait_for(bad)
    good = [report(link) for _ in range(6)]
    with bad._custody.changing() as state:
        bad._reporting._make(state, None)  # type: ignore[union-attr]
        made = json.loads(state.report)
        state.report = json.dumps({**made, "helper": made["helper"][:-8] + "AAAAAAA="})
    assert bad.report().state == "pending"
    good += [report(link) for _ in range(2)]
    assert {device.report().state for device in good} == {"counted"}
    with pytest.raises(ServerError, match="neither server counts it"):
        bad.report()
    share = both.leader.trials.whole(both.plan)[0]
    assert (share.n, sum(share.devices)) == (8, 8)
    # The same half under another arm, group or number, or for the other server, opens as little.
    kept = device_in(both.plan, "a", link)
    kept.record({"y": 1.0})
    wait_for(kept)
    with kept._custody.changing() as state:
        kept._reporting._make(state, None)  # type: ignore[union-attr]
        message = msgspec.json.decode(state.report, type=SplitSums)
    partner = both.leader.trials.partner(both.plan)
    assert partner is not None
    assert len(partner.open(message, message.group, message.leader)) == 8 * count_of(both.plan)
    for change in ({"arm": "b"}, {"number": bytes(16)}):
        with pytest.raises(MessageError, match="does not open"):
            partner.open(msgspec.structs.replace(message, **change), message.group, message.leader)
    for group, half in ((message.group ^ 1, message.leader), (message.group, message.helper)):
        with pytest.raises(MessageError, match="does not open"):
            partner.open(message, group, half)


def test_nobody_but_the_leader_is_answered_and_nothing_twice(tmp_path: Path) -> None:
    both = TwoServers(tmp_path, shared(**SMALL))
    link = DirectLink(both.leader.trials, both.plan)
    for _ in range(20):
        report(link)
    assert len(both.traffic) == 2
    url, data, proof = both.traffic[-1]
    status, content, _ = both.deliver(url, data, proof)
    assert (status, both.deliver(url, data, proof)[1]) == (200, content)  # the same answer
    first = both.traffic[0]
    assert both.deliver(*first)[0] == 409  # overtaken
    for stranger in ("", "AAAA", proof[:-4] + "AAA=", f"{proof.split()[0]} {proof.split()[0]}"):
        assert both.deliver(url, data, stranger)[0] == 401
    other = OneServer(tmp_path / "other", both.plan, "helper")
    with pytest.raises(IngestError, match="another key for it"):
        Pair("leader", KEYS["helper"]).partner(both.plan)
    other.trials._pair = None
    with pytest.raises(IngestError, match="has no part in trials"):
        other.trials.partner(both.plan)
    desk = both.helper.trials.helper(both.plan.name)
    digest = both.leader.trials.whole(both.plan)[0].split.digest
    with pytest.raises(MessageError, match="a cohort of devices"):
        desk.add(ReportBatch(3, digest, []))
    with pytest.raises(IngestError, match="restored from an old"):
        desk.add(ReportBatch(9, digest, []))


def test_the_helper_takes_no_devices_and_ends_nothing_by_mistake(tmp_path: Path) -> None:
    both = TwoServers(tmp_path, shared(**SMALL))
    with pytest.raises(ServerError, match=r"send to its leader, at http://leader\.example"):
        report(DirectLink(both.helper.trials, both.plan))
    link = DirectLink(both.leader.trials, both.plan)
    devices = [report(link) for _ in range(31)]
    with pytest.raises(IngestError, match="ends where its leader is"):
        both.helper.endings.end(both.plan, EndRequest())
    both.helper.endings.end(both.plan, EndRequest(without_effects=True))
    both.helper.endings.end(both.plan, EndRequest())  # it has ended
    partner = both.leader.trials.partner(both.plan)
    assert partner is not None
    with pytest.raises(IngestError, match="published nothing"):
        closed(partner, both.leader.trials.whole(both.plan)[0], publish=True)
    assert both.leader.store.trial(both.plan.name).final is None
    with pytest.raises(ServerError, match="the helper"):  # with it, there is a cohort
        report(link)
    both.end(without_effects=True)
    assert both.leader.store.trial(both.plan.name).final is not None
    assert devices[0].report().state == "counted"


def test_a_trial_with_too_few_stays_open_and_nothing_is_published(tmp_path: Path) -> None:
    both = TwoServers(tmp_path, shared(**{**SMALL, "smallest_cell": 2}))
    link = DirectLink(both.leader.trials, both.plan)
    for i in range(16):
        report(link, "ab"[i % 2])
    with pytest.raises(IngestError, match=r"still open, because .*: with the reports of 16 devices, fewer than 8"):
        both.end()
    assert both.leader.trials.look(both.plan).stage == "open"
    report(link)  # so that devices may still come
    split = both.leader.trials.whole(both.plan)[0].split
    desk = both.helper.trials.helper(both.plan.name)
    with pytest.raises(IngestError, match="nothing was published"):
        desk.close(Closing(split.batch, split.digest))  # whatever the leader says
    assert both.helper.store.trial(both.plan.name).final is None
    both.end(without_effects=True)
    final = both.helper.store.trial(both.plan.name).final
    assert final is not None
    assert json.loads(final)["summands"] is None


def test_reports_wait_while_the_helper_is_away_and_count_when_it_is_back(tmp_path: Path) -> None:
    away = [True]

    def between(ask: Any) -> Any:
        if away[0]:
            raise Unavailable("the helper cannot be reached.")
        return ask()

    both = TwoServers(tmp_path, shared(**SMALL), between)
    link = DirectLink(both.leader.trials, both.plan)
    waiting = [report(link) for _ in range(7)]
    refused = device_in(both.plan, None, link)
    refused.record({"y": 1.0})
    wait_for(refused)
    for _ in range(2):
        with pytest.raises(ServerError, match="cannot be reached"):
            refused.report()
    away[0] = False
    assert refused.report().state == "counted"
    assert {device.report().state for device in waiting} == {"counted"}


def test_two_processes_on_one_database_add_up_the_same_reports(tmp_path: Path) -> None:
    both = TwoServers(tmp_path, shared(**SMALL))
    links = []
    for shard in ("one", "two"):
        pair = Pair("leader", KEYS["leader"], both._post)
        links.append(DirectLink(DeviceTrials(both.leader.store, shard, both.leader.answers, pair), both.plan))
    devices = []
    for place in range(24):
        both.helper.trials._shard = f"process {place}"
        devices.append(device_in(both.plan, None, links[place % 2]))
        devices[-1].record({"y": 1.0})
        wait_for(devices[-1])
    for _ in range(4):  # what the other process has overtaken comes again
        for device in devices:
            with suppress(ServerError):
                device.report()
    counted = sum(device.report().state == "counted" for device in devices)
    assert both.leader.trials.whole(both.plan)[0].split.reports.sum() == counted >= 16


def test_without_a_cohort_a_device_withdraws_by_itself(tmp_path: Path) -> None:
    both = TwoServers(tmp_path, shared(**{**SMALL, "cohort": 1}))
    link = DirectLink(both.leader.trials, both.plan)
    device = device_in(both.plan, None, link)
    device.record({"y": 1.0})
    wait_for(device)
    report(link)
    device.report(keep_report=True)
    device.withdraw()
    assert both.leader.trials.whole(both.plan)[0].split.reports.sum() == 1


# What is published.


def filled(plan: fa.Plan, devices: int, rng: np.random.Generator) -> tuple[Summands, Summands, Any]:
    """What the servers hold of so many devices, and the numbers in the clear."""
    leader, helper = Summands(plan), Summands(plan)
    clear = np.zeros((*leader.reports.shape, count_of(plan)))
    for place in range(devices):
        arm, group, seed = int(rng.integers(2)), int(rng.integers(plan.groups)), rng.bytes(SEED)
        sums = rng.uniform(-100, 100, count_of(plan) - 1)
        words, number = fixed(plan, 1, sums), place.to_bytes(16, "big")
        clear[arm, group] += [1, *sums]
        leader.add([Half(number, arm, group, unpacked(split(words, seed), len(words)))])
        helper.add([Half(number, arm, group, expanded(seed, len(words)))])
    return leader, helper, clear


def test_groups_are_added_until_each_has_enough() -> None:
    plan = shared(smallest_cell=10, expected_units=2_000)
    leader, helper, clear = filled(plan, 700, np.random.default_rng(1))
    ours, theirs = publish(plan, leader), publish(plan, helper)
    assert plan.groups == 64
    assert ours.groups == theirs.groups < plan.groups
    counts = leader.reports.reshape(2, -1, ours.groups).sum(axis=1)
    finer = leader.reports.reshape(2, -1, 2 * ours.groups).sum(axis=1)
    assert counts.min() >= 10 > finer.min()
    tallies: Any = joined(plan, ours, theirs)[0].tallies
    expected = clear.reshape(2, -1, ours.groups, 2).sum(axis=1)
    np.testing.assert_array_equal(tallies.sums.records[:, : ours.groups], expected[..., 0])
    np.testing.assert_allclose(tallies.sums.totals(0)[:, : ours.groups], expected[..., 1], atol=1e-6)
    with pytest.raises(fa.StateError, match="have not added up the same reports"):
        joined(plan, ours, msgspec.structs.replace(theirs, digest=bytes(32)))


def test_of_a_release_each_server_adds_noise_of_its_own() -> None:
    """The spread of what is joined is that of both noises; that of one alone would be a root of 2 smaller."""
    plan = shared(release=fa.Release(1.0), expected_units=20_000)
    leader, helper, clear = filled(plan, 200, np.random.default_rng(2))
    groups = publish(plan, leader).groups
    cell = noise_of(plan).shape
    assert cell[1] == groups == 16
    expected = clear.reshape(2, -1, groups, 2).sum(axis=1)
    found = []
    for _ in range(30):
        tallies: Any = joined(plan, publish(plan, leader), publish(plan, helper))[0].tallies
        assert tallies.released
        found.append(np.stack([tallies.sums.records, tallies.sums.totals(0)], axis=-1) - expected)
    alone = np.stack([noise_of(plan) for _ in range(30)])
    ratio = np.std(found, axis=(0, 1, 2)) / np.std(alone, axis=(0, 1, 2))
    assert np.all(np.abs(ratio - np.sqrt(2)) < 0.15), ratio


@pytest.mark.parametrize("n", [-5, -(2**62), 10**9])
def test_a_group_with_records_that_its_devices_cannot_have_is_left_out_and_named(n: int) -> None:
    plan = shared(smallest_cell=1, expected_units=400)
    leader, helper, clear = filled(plan, 400, np.random.default_rng(3))
    words, seed = fixed(plan, n, np.array([1.0])), bytes(SEED)
    leader.add([Half(bytes(16), 1, 5, unpacked(split(words, seed), 2))])
    helper.add([Half(bytes(16), 1, 5, expanded(seed, 2))])
    theirs = publish(plan, helper)
    whole = SumsInShares().joined(ServerShare(fa.Trial(plan), summands=leader), theirs)
    clear[1, 5 % theirs.groups :: theirs.groups] = 0
    means = [arm[..., 1].sum() / arm[..., 0].sum() for arm in clear]
    effects = SumsInShares().results(whole, Devices({"a": 200, "b": 201}, {"a": 200, "b": 201}), None, OWN)[0]
    assert effects[0].estimate == pytest.approx(means[1] - means[0], abs=1e-6)
    assert any(f"Group {5 % theirs.groups} of the arm b is left out" in note for note in effects.notes)


def test_a_key_pair_comes_back_from_its_file_and_nothing_else_does() -> None:
    pair = KeyPair.new()
    assert KeyPair.loads(pair.dumps()).public == pair.public
    with pytest.raises(ValueError, match="PEM"):
        KeyPair.loads(b"-----BEGIN PRIVATE KEY-----")
