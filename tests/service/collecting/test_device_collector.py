"""Each device is counted once or is missing, whatever is repeated, reordered, killed or lost."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pytest

import batches
import foldaway as fa
from clustered import reply
from counted_devices import Simulated, begun, one, plan_of
from foldaway.errors import (
    Conflict,
    FoldawayError,
    IngestError,
    MessageError,
    TooEarly,
    TrialEnded,
    Unavailable,
    UnknownNumber,
)
from foldaway.federated.coordinator.ending import EndRequest
from foldaway.federated.messages import DeviceSums, Enrolment, Received, ScoreReply, encoded, new_number, packed
from foldaway.federated.modes.share import ServerShare
from foldaway.service.collecting.answers import Answer
from foldaway.service.collecting.record_trials import Sent
from foldaway.service.collecting.service import Service
from foldaway.service.database.store import Store
from foldaway.service.keys.tokens import Wanted
from foldaway.service.keys.vault import Vault
from foldaway.sources.formats.body import Limits
from plans import SMALL
from stores import Place

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("exact_counts")]


class Schedule:
    """Random moments of everything that can happen."""

    def __init__(self, store: Store, seed: int, mode: str) -> None:
        self.random = random.Random(seed)
        # Mode scores publishes nothing of an arm of less than a cohort: small ones, so that most get to the replies.
        largest = 2 if mode == "scores" else 5
        self.plan = plan_of(f"{mode}-{seed}", mode, cohort=self.random.randint(1, largest))
        self.store = store
        self.shards = ["one", "two"][: self.random.randint(1, 2)]
        self.servers = {shard: self.started(shard) for shard in self.shards}
        self.servers["one"].create(self.plan.to_toml())
        self.devices = [Simulated(self.plan, j) for j in range(10)]

    def started(self, shard: str) -> Service:
        return Service(self.store, shard, Limits())

    def send(self, kind: str, some: list[Simulated]) -> None:
        server = self.servers[self.random.choice(self.shards)]
        try:
            outcomes = server.devices.receive(self.plan.name, kind, [d.message(kind) for d in some])  # type: ignore[arg-type]
        except (Conflict, Unavailable):
            return
        except TrialEnded as ended:
            outcomes = [ended] * len(some)
        if self.random.random() < 0.2:  # the answers are lost
            return
        for device, outcome in zip(some, outcomes, strict=True):
            device.told(kind, outcome)

    def step(self, kinds: list[str]) -> None:
        kind = self.random.choice(kinds)
        # The first of them stay, whatever comes.
        of = self.devices[4:] if kind == "withdrawals" else self.devices
        some = self.random.sample(of, self.random.randint(1, 4))
        if kind == "reports" and self.plan.mode == "scores":
            some = [device for device in some if device.scores is not None]
        if self.random.random() < 0.2:
            some += some  # in the same breath
        if some:
            self.send(kind, some)
        shard = self.random.choice(self.shards)
        chance = self.random.random()
        if chance < 0.08:
            self.servers[shard] = self.started(shard)  # killed, and started again
        elif chance < 0.12:
            self.servers[shard].stop()
            self.servers[shard] = self.started(shard)
        elif chance < 0.2:
            with suppress(Conflict):  # two servers had the same report; the device will ask again
                self.servers[shard].tick()

    def end(self, wanted: EndRequest | None = None) -> Answer:
        return self.servers[self.random.choice(self.shards)].end(self.plan.name, wanted)

    def counted(self, records: int | None) -> set[int]:
        assert records is not None
        return {j for j in range(len(self.devices)) if records >> j & 1}


def assert_counted_once_in_one_round(store: Store, seed: int, mode: str) -> None:
    schedule = Schedule(store, seed, mode)
    for _ in range(25):
        schedule.step(["enrolments", "enrolments", "reports", "reports", "reports", "withdrawals"])
    if schedule.random.random() < 0.5:
        schedule.end(EndRequest(deadline=1000.0, without_effects=True))
        for _ in range(8):
            schedule.step(["enrolments", "reports", "reports", "withdrawals"])
    answer = schedule.end(EndRequest(deadline=0.0, without_effects=True))
    assert answer.final
    check(schedule, answer, schedule.counted(answer.records), "reports")
    assert schedule.end() == answer


def assert_counted_once_with_scores(store: Store, seed: int) -> None:
    schedule = Schedule(store, seed, "scores")
    for _ in range(20):
        schedule.step(["enrolments", "moments"])
    answer = schedule.end(EndRequest(deadline=1000.0, without_effects=True))
    if answer.final:  # the moments of an arm were too few to be published
        assert answer.federated is not None
        assert answer.federated.note is not None
        return
    published = schedule.servers["one"].devices.coefficients(schedule.plan.name)
    inside = schedule.counted(answer.records)
    for j, device in enumerate(schedule.devices):
        if device.states.get("moments") == "durable":
            assert j in inside
        # A device asks once more for what it has no answer to.
        schedule.servers[schedule.shards[0]].devices.receive(schedule.plan.name, "moments", [device.message("moments")])
        if j in inside:
            values = reply(schedule.plan, published, device.arm, device.rows(j))
            device.scores = encoded(ScoreReply(device.number, device.arm, packed(values)))
    for _ in range(20):
        schedule.step(["enrolments", "moments", "reports", "reports"])
    answer = schedule.end(EndRequest(deadline=0.0, without_effects=True))
    assert answer.final
    assert schedule.counted(answer.records) == inside
    assert answer.federated is not None
    reported = sum(answer.federated.reported.values())
    sent = {j for j in inside if schedule.devices[j].scores is not None}
    durable = {j for j, device in enumerate(schedule.devices) if device.states.get("reports") == "durable"}
    assert len(durable) <= reported <= len(sent)
    if answer.federated.integrity is not None and reported == len(inside):
        # Everyone whose records are here has replied, once: it must add up.
        assert answer.federated.integrity.verdict == "all here"


def check(schedule: Schedule, answer: Answer, counted: set[int], kind: str) -> None:
    durable = {j for j, device in enumerate(schedule.devices) if device.states.get(kind) == "durable"}
    late = {j for j, device in enumerate(schedule.devices) if device.states.get(kind) == "too late"}
    asked = {j for j, device in enumerate(schedule.devices) if device.withdrew}
    out = {j for j, device in enumerate(schedule.devices) if device.states.get("withdrawals") == "durable"}
    assert durable - asked <= counted
    assert not (late | out) & counted
    assert answer.records == sum(schedule.devices[j].n for j in counted)
    told = answer.federated
    assert told is not None
    assert told.stage == "ended"
    for arm in schedule.plan.arms:
        here = [j for j in counted if schedule.devices[j].arm == arm]
        assert told.reported[arm] == len(here)
        assert told.enrolled[arm] - told.reported[arm] == told.missing[arm] >= 0


# So many schedules for each mode; FOLDAWAY_SCHEDULES=250 makes a thousand of them.
SCHEDULES = int(os.environ.get("FOLDAWAY_SCHEDULES", "4"))


@pytest.mark.parametrize("mode", ["delta", "sums", "one-message", "scores"])
def test_random_schedules(store: Store, mode: str) -> None:
    for seed in range(SCHEDULES):
        if mode == "scores":
            assert_counted_once_with_scores(store, seed)
        else:
            assert_counted_once_in_one_round(store, seed, mode)


def test_several_servers_on_postgres(database: Place) -> None:
    store = database.open()
    try:
        begun(Service(store, "one", Limits()), "delta")  # as many as come are let in
        for seed in range(1000, 1001):
            assert_counted_once_in_one_round(store, seed, "delta")
            assert_counted_once_with_scores(store, seed)
    finally:
        store.close()


# Single cases.


def test_a_report_is_durable_with_its_cohort_and_not_before(service: Service) -> None:
    plan, devices = begun(service, "delta")
    first, second, third = (device.message("reports") for device in devices)
    assert one(service, plan, "reports", first) == Received(repeated=False, durable=False)
    assert one(service, plan, "reports", first) == Received(repeated=True, durable=False)
    assert one(service, plan, "reports", second) == Received(repeated=False, durable=False)
    assert service.devices.pending(plan.name) == 2
    assert one(service, plan, "reports", third) == Received(repeated=False, durable=True)
    assert one(service, plan, "reports", first) == Received(repeated=True, durable=True)
    assert service.devices.pending(plan.name) == 0
    assert service.status(plan.name).records == 7


def test_what_a_crash_takes_may_come_again(service: Service) -> None:
    plan, devices = begun(service, "delta")
    one(service, plan, "reports", devices[0].message("reports"))
    again = Service(service.store, "main", Limits())
    assert one(again, plan, "reports", devices[0].message("reports")) == Received(repeated=False, durable=False)


def test_a_number_that_was_never_enrolled_is_not_counted(service: Service) -> None:
    plan, _ = begun(service, "delta")
    stranger = Simulated(plan, 5).message("reports")
    assert isinstance(one(service, plan, "reports", stranger), UnknownNumber)
    assert service.devices.pending(plan.name) == 0


def test_one_bad_message_does_not_take_the_others_with_it(service: Service) -> None:
    plan, devices = begun(service, "delta")
    good = [device.message("reports") for device in devices]
    bad = encoded(DeviceSums(devices[0].number, "c", 1, packed(np.array([1.0]))))
    outcomes = service.devices.receive(plan.name, "reports", [b"", bad, *good, b"\xc1"])
    assert [type(outcome) for outcome in outcomes] == [MessageError, MessageError, *[Received] * 3, MessageError]
    assert service.status(plan.name).records == 7


def test_an_enrolled_number_is_not_one_for_moments(service: Service) -> None:
    plan, devices = begun(service, "scores")
    moments = msgspec.structs.replace(devices[0].moments, number=devices[0].number)
    assert isinstance(one(service, plan, "moments", encoded(moments)), MessageError)


def test_each_stage_takes_its_own_messages(service: Service) -> None:
    plan, devices = begun(service, "scores", cohort=1)
    early = encoded(ScoreReply(devices[0].number, devices[0].arm, packed(np.zeros(3))))
    assert isinstance(one(service, plan, "reports", early), TooEarly)
    with pytest.raises(TooEarly):
        service.devices.coefficients(plan.name)
    with pytest.raises(TooEarly):
        service.effects(plan.name)
    for device in devices[:2]:
        one(service, plan, "moments", device.message("moments"))
    waiting = service.end(plan.name)
    assert not waiting.final
    assert waiting.federated is not None
    assert waiting.federated.stage == "replying"
    assert isinstance(one(service, plan, "moments", devices[2].message("moments")), TrialEnded)
    assert one(service, plan, "moments", devices[0].message("moments")) == Received(repeated=True, durable=True)
    lot = [encoded(Enrolment(new_number(), "a")), devices[0].message("enrolments")]
    late, again = service.devices.receive(plan.name, "enrolments", lot)
    assert isinstance(late, TrialEnded)
    assert again == Received(repeated=True, durable=True)
    assert service.devices.coefficients(plan.name).stage == "replying"


def test_a_commit_that_is_not_answered_is_found_out(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database took it, and the connection broke before it could say so."""
    plan, devices = begun(service, "delta")
    table = service.store.devices
    commit: Callable[..., int] = table.commit

    def broken(*args: Any, **named: Any) -> int:
        commit(*args, **named)
        raise Unavailable("the connection broke.")

    messages = [device.message("reports") for device in devices]
    with monkeypatch.context() as patch:
        patch.setattr(table, "commit", broken)
        with pytest.raises(Unavailable):
            service.devices.receive(plan.name, "reports", messages)
    outcomes = service.devices.receive(plan.name, "reports", messages)
    assert outcomes == [Received(repeated=True, durable=True)] * 3
    assert service.end(plan.name, EndRequest(without_effects=True)).records == 7


def test_records_and_reports_keep_to_their_own_trials(service: Service) -> None:
    plan, _ = begun(service, "delta")
    plain = fa.Plan(**{**SMALL, "name": f"plain-{time.time_ns()}"})
    service.create(plain.to_toml())
    with pytest.raises(IngestError, match="stay on its devices") as refused:
        batches.send(service, plan.name, b"[]", Sent("application/json"))
    assert refused.value.status == 409
    with pytest.raises(IngestError, match="takes records"):
        service.devices.receive(plain.name, "reports", [b""])
    with pytest.raises(IngestError, match="stay on devices"):
        service.end(plain.name, EndRequest(deadline=1.0))


def test_a_table_of_numbers_says_whether_they_are_used_and_no_arm(service: Service, store: Store) -> None:
    plan, devices = begun(service, "delta")
    for device in devices:
        one(service, plan, "reports", device.message("reports"))
    with store._trials.begin() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM foldaway_numbers WHERE trial = ?", (plan.name,)).all()
    assert {tuple(row._fields) for row in rows} == {("trial", "number", "used", "arm", "report", "shard", "out")}
    assert not {device.number for device in devices} & {row.number for row in rows}
    # Nobody without their numbers sees which have one arm, or what they reported.
    assert len({row.arm for row in rows}) == len({row.report for row in rows}) == len(devices)


def test_sites_and_devices_share_a_trial(service: Service) -> None:
    plan = plan_of(f"site-{time.time_ns()}", "one-message", unit="u", records_per_unit="together", cohort=2)
    service.create(plan.to_toml())
    trial = fa.Trial(plan)
    trial.fold({"group": ["a", "a", "b", "b", "a"], "u": [1, 1, 2, 3, 4], "y": [1.0, 2.0, 3.0, 4.0, 6.0]})
    number = new_number()
    assert service.devices.receive_site(plan.name, number, trial.dumps()) == Received(repeated=False, durable=True)
    assert service.devices.receive_site(plan.name, number, trial.dumps()) == Received(repeated=True, durable=True)
    told = service.status(plan.name).federated
    assert told is not None
    assert told.enrolled == told.reported == {"a": 2, "b": 2}
    small = fa.Trial(plan)
    small.fold({"group": ["a", "b"], "u": [1, 2], "y": [1.0, 2.0]})
    for bad in (small.dumps(), trial.dumps()[:-1], b"", fa.Trial(plan_of("other", "one-message")).dumps()):
        with pytest.raises(MessageError):
            service.devices.receive_site(plan.name, new_number(), bad)
    assert service.status(plan.name).records == 5


def test_what_was_published_follows_the_key(folder: Place) -> None:
    old, new = Vault([bytes(range(32))]), Vault([bytes(range(1, 33))])
    store = folder.open(old)
    service = Service(store, "main", Limits())
    plan, devices = begun(service, "scores", cohort=1)
    for device in devices:
        one(service, plan, "moments", device.message("moments"))
    service.end(plan.name)
    published = service.devices.coefficients(plan.name)
    assert devices[0].moments.factor not in folder.files()
    assert published.frame not in folder.files()
    store.rotate(new)
    store.close()
    again = folder.open(new)
    assert Service(again, "main", Limits()).devices.coefficients(plan.name) == published
    again.close()


def test_a_site_takes_no_single_device_with_it(service: Service) -> None:
    """Its tallies are a cohort by themselves; a report that waits for its own stays in memory."""
    plan, devices = begun(service, "one-message", count=2, unit="u", records_per_unit="together")
    one(service, plan, "reports", devices[1].message("reports"))
    site = fa.Trial(plan)
    site.fold({"group": ["a"] * 4, "u": [1, 2, 3, 4], "y": [1.0, 2.0, 4.0, 3.0]})
    assert service.devices.receive_site(plan.name, new_number(), site.dumps()).durable
    status = service.status(plan.name)
    assert (status.records, service.devices.pending(plan.name)) == (4, 1)
    (shard,) = service.store.shards.all(plan.name)
    assert shard.state is not None
    assert ServerShare.of(plan, shard.state).trial.counts == {"a": 4, "b": 0}
    # Lost with the server, it may come again; and it is counted beside the site, once.
    again = Service(service.store, "main", Limits())
    for server in (service, again):
        assert not isinstance(one(server, plan, "reports", devices[1].message("reports")), FoldawayError)
    one(again, plan, "reports", devices[0].message("reports"))
    assert again.end(plan.name, EndRequest(without_effects=True)).records == 4 + 1 + 2


def test_moments_that_were_given_up_are_in_no_later_commit(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the database goes away at that moment; and they are counted as left out in the end."""
    plan, devices = begun(service, "scores", count=6, cohort=2)
    for device in devices[:4]:
        one(service, plan, "moments", device.message("moments"))
    late = Service(service.store, "late", Limits())
    one(late, plan, "moments", devices[4].message("moments"))
    assert not service.end(plan.name, EndRequest(deadline=1000.0)).final

    def away(*_: Any) -> None:
        raise Unavailable("the database cannot be reached.")

    published = service.devices.coefficients(plan.name)
    replies = []
    for j, device in enumerate(devices[:4]):
        values = reply(plan, published, device.arm, device.rows(j))
        replies.append(encoded(ScoreReply(device.number, device.arm, packed(values))))
    with monkeypatch.context() as patch:
        patch.setattr(service.store.shards, "leave_out", away)
        with pytest.raises(Unavailable):
            late.tick()
        with pytest.raises(Unavailable):
            late.devices.receive(plan.name, "reports", replies)
    outcomes = late.devices.receive(plan.name, "reports", replies)
    assert outcomes == [Received(repeated=False, durable=True)] * 4
    answer = service.end(plan.name, EndRequest(deadline=0.0, without_effects=True))
    assert (answer.records, answer.left_out) == (1 + 2 + 4 + 8, 1)


# Two servers on one store: what is durable is never told to be too late.


def ready(service: Service, mode: str) -> tuple[fa.Plan, str, list[bytes]]:
    """A trial with messages of four devices, a cohort of which is two."""
    plan, devices = begun(service, mode, count=4, cohort=2)
    kind = "moments" if mode == "scores" else "reports"
    return plan, kind, [device.message(kind) for device in devices]


@pytest.mark.parametrize("mode", ["scores", "one-message", "delta", "sums"])
def test_between_two_looks_at_the_database_another_server_moves_on(
    service: Service, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, kind, messages = ready(service, mode)
    other = Service(service.store, "other", Limits())
    one(service, plan, kind, messages[0])
    happened: list[Any] = []

    def then_moves_on(read: Callable[..., Any]) -> Callable[..., Any]:
        def reading(*args: Any, **named: Any) -> Any:
            found = read(*args, **named)
            if not happened:
                happened.append(read)
                service.devices.receive(plan.name, kind, messages[1:])  # type: ignore[arg-type]
                service.end(plan.name, EndRequest(1000.0 if mode == "scores" else 0.0, without_effects=True))
            return found

        return reading

    other.devices.receive(plan.name, kind, [])  # type: ignore[arg-type]
    table = service.store.devices
    for read in ("known", "situation", "look"):
        monkeypatch.setattr(table, read, then_moves_on(getattr(table, read)))
    first = one(other, plan, kind, messages[0])
    assert happened
    assert isinstance(first, Received)
    other.tick()
    assert one(other, plan, kind, messages[0]) == Received(repeated=True, durable=True)


@pytest.mark.parametrize("mode", ["scores", "one-message", "delta", "sums"])
def test_a_commit_that_comes_too_late_does_not_refuse_what_is_durable(
    service: Service, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, kind, messages = ready(service, mode)
    other = Service(service.store, "other", Limits())
    service.devices.receive(plan.name, kind, messages[:2])  # type: ignore[arg-type]
    commit = service.store.devices.commit

    def after_the_end(*args: Any, **named: Any) -> int:
        monkeypatch.setattr(service.store.devices, "commit", commit)
        service.end(plan.name, EndRequest(deadline=0.0, without_effects=True))
        return commit(*args, **named)

    monkeypatch.setattr(service.store.devices, "commit", after_the_end)
    lot = [messages[0], b"\xc1", *messages[2:]]
    durable, faulty, *late = other.devices.receive(plan.name, kind, lot)  # type: ignore[arg-type]
    assert durable == Received(repeated=True, durable=True)
    assert isinstance(faulty, MessageError)
    assert [type(outcome) for outcome in late] == [TrialEnded, TrialEnded]


def test_a_site_s_token_is_good_for_so_many_units_in_all(service: Service) -> None:
    plan, _ = begun(service, "one-message", count=0, unit="u", records_per_unit="together")
    token, _ = service.store.tokens.issue(Wanted("site", plan.name, 10))
    site = fa.Trial(plan)
    site.fold({"group": ["a"] * 4, "u": [1, 2, 3, 4], "y": [1.0, 2.0, 4.0, 3.0]})
    numbers = [new_number() for _ in range(3)]
    for number in numbers[:2]:
        assert service.devices.receive_site(plan.name, number, site.dumps(), token.id).durable
    before = service.store.shards.all(plan.name)
    with pytest.raises(MessageError, match="more units than the site's token is still good for"):
        service.devices.receive_site(plan.name, numbers[2], site.dumps(), token.id)
    assert service.store.shards.all(plan.name) == before
    assert service.devices.receive_site(plan.name, numbers[0], site.dumps(), token.id).repeated
    found = service.store.tokens.find(token.id)
    assert found is not None
    assert (found.units, found.brought) == (10, 8)
    assert service.status(plan.name).records == 8


def test_the_largest_share_of_an_arm_counts_sites(service: Service) -> None:
    plan, _ = begun(service, "one-message", count=0, unit="u", records_per_unit="together")
    for units in (8, 24):
        site = fa.Trial(plan)
        ids, y = list(range(units)), [float(i % 3) for i in range(units)]
        site.fold({"group": ["ab"[i % 2] for i in ids], "u": ids, "y": y})
        service.devices.receive_site(plan.name, new_number(), site.dumps())
    effects = service.effects(plan.name).opened()
    assert effects is not None
    assert "The largest share of an arm's records that came from one device or site: 75 %." in effects.notes
