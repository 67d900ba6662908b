"""How a federated trial ends: at its deadline, by a share of its devices, and not for nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import foldaway as fa
from clustered import reply
from counted_devices import Simulated, begun, one
from foldaway.errors import IngestError, TooEarly, TrialEnded
from foldaway.federated.coordinator.ending import EndRequest
from foldaway.federated.messages import Received, ScoreReply, encoded, packed
from foldaway.service.collecting.service import Service
from foldaway.sources.formats.body import Limits

pytestmark = pytest.mark.usefixtures("exact_counts")


def deadline_passes(service: Service, plan: fa.Plan, deadline: float = 0.0) -> None:
    """As if it had been this, a long time ago."""
    ending = service.store.devices.situation(plan).ending
    assert ending is not None
    service.store.devices.change_ending(plan.name, ending._replace(deadline=deadline))


def replies_of(service: Service, plan: fa.Plan, devices: list[Simulated]) -> list[bytes]:
    published = service.devices.coefficients(plan.name)
    values = [reply(plan, published, device.arm, device.rows(j)) for j, device in enumerate(devices)]
    pairs = zip(devices, values, strict=True)
    return [encoded(ScoreReply(device.number, device.arm, packed(value))) for device, value in pairs]


def test_the_deadline_ends_it_without_anybody_asking(service: Service) -> None:
    plan, devices = begun(service, "delta", cohort=2)
    service.devices.receive(plan.name, "reports", [device.message("reports") for device in devices[:2]])
    assert not service.end(plan.name, EndRequest(deadline=1000.0, without_effects=True)).final
    service.tick()
    assert service.status(plan.name).status == "open"
    deadline_passes(service, plan)
    service.tick()
    status = service.status(plan.name)
    assert status.status == "ended"
    assert status.federated is not None
    assert sum(status.federated.missing.values()) == 1


@pytest.mark.once
@pytest.mark.parametrize("mode", ["one-message", "delta", "scores"])
def test_whoever_ends_it_may_have_exact_effects_once(service: Service, mode: str) -> None:
    """A request that would begin to wait is refused, or the exact effects would be lost when the deadline comes."""
    plan, devices = begun(service, mode, count=9, cohort=3, smallest_cell=2)
    kind: Any = "moments" if mode == "scores" else "reports"
    service.devices.receive(plan.name, kind, [device.message(kind) for device in devices[:8]])
    for waits in ({"deadline": 1000.0}, {} if mode == "scores" else {"share": 1.0}):
        with pytest.raises(IngestError, match=r"nothing was changed.*only the command that ends it.*--deadline 0"):
            service.end(plan.name, EndRequest(exact=True, **waits))  # type: ignore[arg-type]
    assert service.devices.look(plan).stage == "open"
    if mode == "scores":
        assert not service.end(plan.name).final
        service.devices.receive(plan.name, "reports", replies_of(service, plan, devices[:7]))
        with pytest.raises(IngestError, match="nothing was changed"):
            service.end(plan.name, EndRequest(exact=True))
    answer = service.end(plan.name, EndRequest(exact=True, deadline=0.0, without_effects=True))
    exact, told = (fa.Effects.from_json(bytes(each.effects)) for each in (answer, service.effects(plan.name)))
    assert (exact.rounded, told.rounded, exact.final) == (False, True, True)
    assert answer.records == sum(exact.counts.values()) == 2**8 - 1
    with pytest.raises(IngestError, match="exact numbers were destroyed"):
        service.end(plan.name, EndRequest(exact=True))
    assert service.end(plan.name) == service.effects(plan.name)
    assert service.status(plan.name).exact_answers == 1


@pytest.mark.parametrize("mode", ["one-message", "scores"])
def test_a_deadline_that_too_few_have_kept_destroys_nothing(service: Service, mode: str) -> None:
    """The trial waits on; reports still count, more time may be given, and it ends for nothing only if that is said."""
    plan, devices = begun(service, mode, count=4, cohort=1)
    if mode == "scores":
        service.devices.receive(plan.name, "moments", [device.message("moments") for device in devices])
    assert not service.end(plan.name, EndRequest(deadline=1000.0)).final
    messages = (
        replies_of(service, plan, devices) if mode == "scores" else [device.message("reports") for device in devices]
    )
    one(service, plan, "reports", messages[0])
    deadline_passes(service, plan)
    service.tick()
    for _ in range(2):
        with pytest.raises(
            IngestError, match=r"waits on.*durable reports of 1 device .*b has 0.*--deadline"
        ) as refused:
            service.end(plan.name)
        assert refused.value.status == 409
    told = service.status(plan.name)
    assert told.status == "open"
    assert told.federated is not None
    assert told.federated.note is not None
    assert "b has 0" in told.federated.note
    assert not service.end(plan.name, EndRequest(deadline=1000.0)).final
    assert service.status(plan.name).federated.note is None  # type: ignore[union-attr]
    deadline_passes(service, plan)
    assert one(service, plan, "reports", messages[1]) == Received(repeated=False, durable=True)
    service.tick()
    with pytest.raises(IngestError, match="effects would be withheld: Errors by unit need 2 units") as refused:
        service.end(plan.name)  # no longer for want of reports
    assert refused.value.status == 409
    answer = service.end(plan.name, EndRequest(without_effects=True))
    assert answer.final
    assert answer.federated is not None
    assert answer.federated.reported == {"a": 1, "b": 1}


def test_a_trial_that_waits_on_commits_no_single_device(service: Service) -> None:
    """What waits in memory is counted once, by the server that ends it, and then it is a cohort and more."""
    plan, devices = begun(service, "one-message", count=6, cohort=5, smallest_cell=2)
    service.end(plan.name, EndRequest(deadline=1000.0))
    deadline_passes(service, plan)
    service.tick()
    for known, device in enumerate(devices[:4], start=1):
        one(service, plan, "reports", device.message("reports"))
        service.tick()
        status = service.status(plan.name)
        assert (status.records, service.devices.pending(plan.name), status.status) == (0, known, "open")
        with pytest.raises(IngestError, match="waits on"):
            service.end(plan.name)
    one(service, plan, "reports", devices[4].message("reports"))
    service.tick()
    assert service.end(plan.name, EndRequest(without_effects=True)).records == 2**5 - 1


def test_reports_that_make_no_cohort_end_nothing(service: Service) -> None:
    """Every arm has enough of them, but all together are fewer than a cohort: there would be no effects."""
    plan, devices = begun(service, "one-message", count=6, cohort=6, smallest_cell=2)
    service.devices.receive(plan.name, "reports", [device.message("reports") for device in devices[:5]])
    with pytest.raises(IngestError, match=r"reports of 6 devices \(the plan's cohort\), and there are 5"):
        service.end(plan.name)
    assert service.status(plan.name).status == "open"
    one(service, plan, "reports", devices[5].message("reports"))
    answer = service.end(plan.name, EndRequest(without_effects=True))
    assert answer.final
    assert bytes(answer.effects) != b"null"


def test_what_came_after_the_last_answer_and_makes_no_cohort_is_left_out_and_said_so(service: Service) -> None:
    plan, devices = begun(service, "one-message", count=10, cohort=4, smallest_cell=2)
    service.devices.receive(plan.name, "reports", [device.message("reports") for device in devices[:8]])
    shown = service.effects(plan.name)
    service.devices.receive(plan.name, "reports", [device.message("reports") for device in devices[8:]])
    answer = service.end(plan.name, EndRequest(without_effects=True))
    assert (answer.records, answer.left_out) == (shown.records, 2) == (2**8 - 1, 2)
    final, before = (fa.Effects.from_json(bytes(each.effects)) for each in (answer, shown))
    assert final.counts == before.counts
    assert final.notes[:-1] == before.notes
    assert "Left out at the end: about 2 reports, which came after the effects were last shown" in final.notes[-1]
    assert "about 2 reports" in service.report(plan.name)
    assert (service.status(plan.name).records, service.status(plan.name).left_out) == (2**8 - 1, 2)


def test_what_is_pending_here_counts_and_its_numbers_are_used(service: Service) -> None:
    """What waits on another server is left out: its devices are told so, and they are missing."""
    plan, devices = begun(service, "one-message", count=6)
    other = Service(service.store, "other", Limits())
    service.devices.receive(plan.name, "reports", [device.message("reports") for device in devices[:3]])
    one(service, plan, "reports", devices[3].message("reports"))
    one(other, plan, "reports", devices[4].message("reports"))
    answer = service.end(plan.name, EndRequest(without_effects=True))
    assert (answer.final, answer.records) == (True, 2**4 - 1)
    assert answer.federated is not None
    assert (answer.federated.reported, answer.federated.missing) == ({"a": 2, "b": 2}, {"a": 1, "b": 1})
    other.tick()
    for server in (service, other):
        assert one(server, plan, "reports", devices[3].message("reports")) == Received(repeated=True, durable=True)
        assert isinstance(one(server, plan, "reports", devices[4].message("reports")), TrialEnded)
    assert service.status(plan.name).left_out == 1
    assert all(shard.state is None for shard in service.store.shards.all(plan.name))


@pytest.mark.once
def test_what_another_server_has_taken_too_is_counted_once(service: Service) -> None:
    plan, devices = begun(service, "one-message", count=6)
    other = Service(service.store, "other", Limits())
    one(service, plan, "reports", devices[0].message("reports"))
    other.devices.receive(plan.name, "reports", [device.message("reports") for device in devices[:4]])
    answer = service.end(plan.name, EndRequest(without_effects=True))
    assert (answer.final, answer.records) == (True, 2**4 - 1)


@pytest.mark.parametrize("mode", ["one-message", "scores"])
def test_a_wish_to_end_it_without_effects_is_remembered(service: Service, mode: str) -> None:
    plan, devices = begun(service, mode, count=4, cohort=1)
    if mode == "scores":
        service.devices.receive(plan.name, "moments", [device.message("moments") for device in devices])
    assert not service.end(plan.name, EndRequest(deadline=1000.0, without_effects=True)).final
    deadline_passes(service, plan)
    service.tick()
    answer = service.end(plan.name)
    assert (answer.final, bytes(answer.effects)) == (True, b"null")
    assert answer.federated is not None
    assert answer.federated.note is not None
    assert answer.federated.note.endswith("and a has 0.")


def test_a_wish_to_end_it_without_effects_is_shown_and_can_be_taken_back(service: Service) -> None:
    plan, _ = begun(service, "one-message", count=4, cohort=1)
    told = service.end(plan.name, EndRequest(deadline=1000.0, without_effects=True)).federated
    assert told is not None
    assert "will end at its deadline even without effects" in (told.note or "")
    told = service.end(plan.name, EndRequest(deadline=1000.0)).federated
    assert told is not None
    assert told.note is None
    deadline_passes(service, plan)
    service.tick()
    assert service.status(plan.name).status == "open"
    assert service.end(plan.name, EndRequest(without_effects=True)).final


@pytest.mark.parametrize("mode", ["one-message", "scores"])
def test_effects_that_are_asked_for_too_early_say_what_is_waited_for(service: Service, mode: str) -> None:
    plan, devices = begun(service, mode, count=4, cohort=1)
    if mode == "scores":
        service.devices.receive(plan.name, "moments", [device.message("moments") for device in devices])
    service.end(plan.name, EndRequest(deadline=1000.0))
    with pytest.raises(TooEarly, match="last reports are being waited for"):
        service.effects(plan.name)
    deadline_passes(service, plan)
    with pytest.raises(TooEarly, match=f"waits on.* end {plan.name} --deadline SECONDS"):
        service.effects(plan.name)


def test_who_is_not_in_the_coefficients_is_not_waited_for(service: Service) -> None:
    plan, devices = begun(service, "scores", count=5, cohort=1)
    service.devices.receive(plan.name, "moments", [device.message("moments") for device in devices[:4]])
    service.end(plan.name, EndRequest(deadline=1000.0, without_effects=True))
    assert service.status(plan.name).federated.with_moments == {"a": 2, "b": 2}  # type: ignore[union-attr]
    replies = replies_of(service, plan, devices[:4])
    service.devices.receive(plan.name, "reports", replies[:3])
    service.tick()
    assert service.status(plan.name).status == "open"
    service.devices.receive(plan.name, "reports", replies[3:])
    service.tick()
    assert service.status(plan.name).status == "ended"
    told = service.end(plan.name).federated
    assert told is not None
    assert sum(told.missing.values()) == 1


@pytest.mark.parametrize("mode", ["one-message", "scores"])
def test_haste_that_would_leave_no_effects_is_refused_and_changes_nothing(service: Service, mode: str) -> None:
    plan, devices = begun(service, mode, count=4, cohort=1)
    if mode == "scores":
        service.devices.receive(plan.name, "moments", [device.message("moments") for device in devices])
    with pytest.raises(IngestError, match="is still open, because"):
        service.end(plan.name, EndRequest(deadline=0.0))
    assert service.status(plan.name).federated.stage == "open"  # type: ignore[union-attr]
    service.end(plan.name, EndRequest(deadline=1000.0))
    before = service.store.devices.situation(plan).ending
    with pytest.raises(IngestError, match="is still open, because"):
        service.end(plan.name, EndRequest(deadline=0.0))
    assert service.store.devices.situation(plan).ending == before


@pytest.mark.parametrize("moment", range(1, 10))
def test_who_is_in_the_tallies_is_in_the_counts(service: Service, moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever another server commits while this one looks at the database for the last time."""
    plan, devices = begun(service, "one-message", count=6, cohort=2)
    messages = [device.message("reports") for device in devices]
    service.devices.receive(plan.name, "reports", messages[:2])
    other = Service(service.store, "other", Limits())
    reads = 0

    def then_it_commits(read: Callable[..., Any]) -> Callable[..., Any]:
        def reading(*args: Any) -> Any:
            nonlocal reads
            found = read(*args)
            reads += 1
            if reads == moment:
                other.devices.receive(plan.name, "reports", messages[2:])
            return found

        return reading

    monkeypatch.setattr(service.store.devices, "situation", then_it_commits(service.store.devices.situation))
    monkeypatch.setattr(service.store.shards, "all", then_it_commits(service.store.shards.all))
    answer = service.end(plan.name, EndRequest(without_effects=True))
    assert answer.final
    assert answer.federated is not None
    assert answer.records is not None
    assert sum(answer.federated.reported.values()) == answer.records.bit_count()
    assert answer.records in (2**2 - 1, 2**6 - 1)
    assert (answer.records == 2**6 - 1) == (reads > moment)


def test_a_share_is_reached_by_exactly_so_many(service: Service) -> None:
    """0.28 of 25 is 7, and in floating point a little more."""
    assert 0.28 * 25 > 7
    plan, devices = begun(service, "delta", count=25, cohort=1)
    service.end(plan.name, EndRequest(deadline=1000.0, share=0.28, without_effects=True))
    service.devices.receive(plan.name, "reports", [device.message("reports") for device in devices[:6]])
    service.tick()
    assert service.status(plan.name).status == "open"
    one(service, plan, "reports", devices[6].message("reports"))
    service.tick()
    assert service.status(plan.name).status == "ended"


def test_a_share_that_is_enough_ends_it(service: Service) -> None:
    plan, devices = begun(service, "delta", count=4, cohort=1)
    assert not service.end(plan.name, EndRequest(deadline=1000.0, share=0.75, without_effects=True)).final
    for device in devices[:2]:
        one(service, plan, "reports", device.message("reports"))
    service.tick()
    assert service.status(plan.name).status == "open"
    one(service, plan, "reports", devices[2].message("reports"))
    service.tick()
    assert service.status(plan.name).status == "ended"
    assert isinstance(one(service, plan, "reports", devices[3].message("reports")), TrialEnded)
    assert one(service, plan, "reports", devices[2].message("reports")) == Received(repeated=True, durable=True)


@pytest.mark.parametrize(("settings", "least"), [({"cohort": 3}, 3), ({"cohort": 1, "smallest_cell": 4}, 4)])
def test_moments_of_a_few_devices_are_not_published(service: Service, settings: dict[str, int], least: int) -> None:
    """An arm's frame and coefficients are those of its few devices: everyone who takes part could read them."""
    plan, devices = begun(service, "scores", count=2 * least - 1, **settings)
    service.devices.receive(plan.name, "moments", [d.message("moments") for d in devices])
    with pytest.raises(IngestError, match=f"every arm needs moments of {least}.*--without-effects"):
        service.end(plan.name, EndRequest(deadline=1000.0))
    assert service.status(plan.name).status == "open"
    answer = service.end(plan.name, EndRequest(deadline=1000.0, without_effects=True))
    assert answer.final
    assert bytes(answer.effects) == b"null"
    assert answer.federated is not None
    assert answer.federated.note is not None
    assert f"every arm needs moments of {least}" in answer.federated.note
    assert f"b has {least - 1}" in answer.federated.note
    after = service.devices.coefficients(plan.name)
    assert (after.stage, after.frame, after.models) == ("ended", b"", [])
    enough, devices = begun(service, "scores", count=2 * least, **settings)
    service.devices.receive(enough.name, "moments", [d.message("moments") for d in devices])
    assert not service.end(enough.name, EndRequest(deadline=1000.0)).final
    assert service.devices.coefficients(enough.name).stage == "replying"


def test_nothing_is_answered_while_the_last_reports_are_waited_for(service: Service) -> None:
    """A report at a time, each second, would be as good as a cohort of one."""
    plan, devices = begun(service, "one-message", count=5)
    service.devices.receive(plan.name, "reports", [d.message("reports") for d in devices[:3]])
    assert service.effects(plan.name).records == 7
    service.end(plan.name, EndRequest(deadline=1000.0))
    for device in devices[3:]:
        one(service, plan, "reports", device.message("reports"))
        assert service.status(plan.name).records == 7
        with pytest.raises(TooEarly, match="last reports are being waited for"):
            service.effects(plan.name)
    answer = service.end(plan.name, EndRequest(without_effects=True))
    assert (answer.final, answer.records, answer.left_out) == (True, 7, 2)  # two are no cohort after the last answer


def test_a_federated_release_counts_no_devices_and_always_ends_with_noise(service: Service) -> None:
    for count in (0, 1, 6):
        settings: dict[str, Any] = {"outcomes": [fa.Mean("y", bounds=(0, 10))], "release": 1.0, "device_records": 10**3}
        plan, devices = begun(service, "sums", count=count, **settings)
        service.devices.receive(plan.name, "reports", [device.message("reports") for device in devices])
        open_ = service.status(plan.name)
        assert open_.federated is not None
        assert (open_.federated.enrolled, open_.federated.reported, open_.federated.missing) == ({}, {}, {})
        assert (open_.records, open_.left_out) == (None, None)
        for exact in (False, True):
            with pytest.raises(fa.Unreleased):
                service.effects(plan.name, exact=exact)
        assert service.end(plan.name, EndRequest(deadline=1000.0)).records is None
        service.tick()
        assert service.status(plan.name).status == "open"  # whoever has reported
        answer = service.end(plan.name, EndRequest(deadline=0.0))
        assert answer.final
        assert answer.left_out is None
        effects = answer.opened()
        assert effects is not None
        assert not any(row.reliable for row in effects)
        assert service.status(plan.name).federated == answer.federated
