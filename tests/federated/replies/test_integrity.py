"""The replies must add up to the moments: one that is dropped, doubled or altered shows, every time."""

from __future__ import annotations

import numpy as np
import pytest

import foldaway as fa
from clustered import Kept, answer, devices_of, everyone, federated, moments, results, share_of, with_replies
from foldaway.federated.messages import ScoreReply, packed
from foldaway.federated.modes import mode_of
from foldaway.federated.modes.share import Devices, ServerShare
from foldaway.federated.replies.integrity import Integrity, integrity
from foldaway.federated.replies.published import Published
from foldaway.inference.few_units import welch_degrees
from sizes import mostly_slow
from trials import make_trial

CLIENTS = 2_000


class Setting:
    """A trial of many devices in mode scores, all their replies at hand."""

    def __init__(self, seed: int, clients: int = CLIENTS, **options: object) -> None:
        plan, rows = make_trial(seed, n=4 * clients, units=True, covariates=1, **options)  # type: ignore[arg-type]
        self.plan = federated(plan, "scores")
        self.devices: list[Kept] = devices_of(self.plan, rows)[:clients]
        self.moments = share_of(self.plan, [moments(kept) for kept in self.devices])
        self.published = Published.of(self.moments.trial)
        self.replies = [answer(self.plan, self.published, kept) for kept in self.devices]

    def judged(self, replies: list[ScoreReply], devices: Devices) -> Integrity:
        share = ServerShare.of(self.plan)
        mode_of(self.plan).fold(share, replies, [np.frombuffer(reply.scores) for reply in replies], self.published)
        assert share.replies is not None
        return integrity(self.published.arms, share.replies, devices.missing)

    def full(self) -> Devices:
        return everyone(self.plan, self.devices)


def scaled(reply: ScoreReply, factor: float) -> ScoreReply:
    values = np.frombuffer(reply.scores, dtype="<f8")
    return ScoreReply(reply.number, reply.arm, packed(values * factor))


@pytest.mark.parametrize("seed", mostly_slow(range(2), 1))
def test_one_client_among_two_thousand(seed: int) -> None:
    setting = Setting(seed, shift=[0.0, 1e6][seed % 2])
    replies, full = setting.replies, setting.full()
    assert len(replies) > CLIENTS / 2
    fine = setting.judged(replies, full)
    assert fine.verdict == "all here"
    assert fine.residual is not None
    assert fine.residual < 0.1
    for client in np.random.default_rng(seed).choice(len(replies), 10, replace=False):
        others, one = replies[:client] + replies[client + 1 :], replies[client]
        # Dropped on the way, and known to be missing.
        missing = everyone(setting.plan, setting.devices, others)
        judged = setting.judged(others, missing)
        assert judged.verdict == "some missing"
        # The difference is the missing device's reply: it is not told.
        assert judged.residual is None
        # Dropped, doubled or altered behind everybody's back.
        for wrong in (others, [*replies, one], [*others, scaled(one, 10.0)], [*others, scaled(one, -1.0)]):
            judged = setting.judged(wrong, full)
            assert judged.verdict == "altered"
            assert judged.residual is None


def test_a_swapped_arm_shows() -> None:
    setting = Setting(11, clients=200)
    first = setting.replies[0]
    other = next(arm for arm in setting.plan.arms if arm != first.arm)
    moved = [ScoreReply(first.number, other, first.scores), *setting.replies[1:]]
    assert setting.judged(moved, setting.full()).verdict == "altered"


def test_more_than_the_missing_explain_is_altered() -> None:
    setting = Setting(12, clients=400)
    present = setting.replies[5:]
    missing = everyone(setting.plan, setting.devices, present)
    assert setting.judged(present, missing).verdict == "some missing"
    norms = [np.linalg.norm(np.frombuffer(reply.scores)) for reply in present]
    large = int(np.argmax(norms))
    wrong = [*present[:large], scaled(present[large], 40.0), *present[large + 1 :]]
    assert setting.judged(wrong, missing).verdict == "altered"


def test_effects_say_it() -> None:
    setting = Setting(13, clients=100)
    share = with_replies(setting.moments.copy(), setting.published, setting.replies)
    effects, judged = results(setting.plan, share, setting.full(), setting.published)
    assert judged is not None
    assert any(note.startswith("Integrity: all here") for note in effects.notes)
    share = with_replies(
        setting.moments.copy(), setting.published, [*setting.replies[1:], scaled(setting.replies[0], 10)]
    )
    effects, judged = results(setting.plan, share, setting.full(), setting.published)
    assert "Do not trust" in str(effects)


def test_missing_replies_scale_the_variance_of_their_arm_up() -> None:
    """The effects stay; the sum over those here, times enrolled over reported, by arm."""
    setting = Setting(14, clients=300)
    present = setting.replies[::2]
    devices = everyone(setting.plan, setting.devices, present)
    share = with_replies(setting.moments.copy(), setting.published, present)
    effects, _ = results(setting.plan, share, devices, setting.published)
    whole, _ = results(
        setting.plan,
        with_replies(setting.moments.copy(), setting.published, setting.replies),
        setting.full(),
        setting.published,
    )
    row, complete = (e.filter(estimator="difference", se_kind="CR0")[0] for e in (effects, whole))
    assert row.estimate == complete.estimate
    parts, replied = [], []
    for arm in setting.plan.arms:
        here = [k for k, r in zip(setting.devices[::2], present, strict=True) if r.arm == arm]
        records = np.concatenate([k.rows[:, -1] for k in setting.devices if k.arm == arm])
        sums = np.array([np.sum(k.rows[:, -1] - records.mean()) for k in here])
        parts.append(np.sum(sums**2) / len(records) ** 2 * devices.enrolled[arm] / devices.reported[arm])
        replied.append(devices.reported[arm])
    assert row.std_error == pytest.approx(np.sqrt(sum(parts)), rel=1e-9)
    # What is known of the error is known from those that replied.
    alike = [1 / n for n in replied]
    assert row.df == pytest.approx(min(welch_degrees(parts, replied), welch_degrees(alike, replied)), rel=1e-9)
    assert any("missing at random" in note for note in effects.notes)
    assert not any("missing at random" in note for note in whole.notes)


def test_an_arm_from_which_nobody_replied_has_no_error() -> None:
    setting = Setting(15, clients=60)
    arm = next(iter(setting.plan.arms))
    present = [reply for reply in setting.replies if reply.arm != arm]
    share = with_replies(setting.moments.copy(), setting.published, present)
    effects, _ = results(setting.plan, share, everyone(setting.plan, setting.devices, present), setting.published)
    assert len(effects) > 0
    for row in effects:
        assert row.estimate is not None
        assert row.why == "No device of an arm has replied, so its part of the error is not known."
    assert isinstance(effects, fa.Effects)


def test_devices_are_sent_one_frame_of_all_arms() -> None:
    """An arm's own frame would be all its second moments: what is sent is that of the pooled records."""
    setting = Setting(17, clients=80)
    frame = setting.published.message("replying", 0.0).frame
    K = len(setting.plan.columns)
    F = np.zeros((K, K))
    F[np.triu_indices(K)] = np.frombuffer(frame)
    pooled = np.concatenate([kept.rows for kept in setting.devices])
    np.testing.assert_allclose(F[0], pooled.mean(axis=0), rtol=1e-9, atol=1e-9)
