"""Random schedules of everything that can go wrong between devices and their coordinator, in one process.

The coordinator is the real one on a real store, without HTTP: a crash throws away what it has in memory and opens the
store again. Devices are the real ones; a kill throws the device away, before or after any change of its state or any
message, and makes it again from what it had stored. The network loses, delays, repeats and reorders messages, and loses
answers.

Every record carries a digit of its own: 4^i in the outcome `mark`. The sum of the marks, to the base 4, says how often
each record is in the tallies.
"""

from __future__ import annotations

import random
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import foldaway as fa
from devices import device_in
from foldaway.federated.coordinator.ending import EndRequest
from foldaway.service.collecting.answers import Answer, Answers
from foldaway.service.collecting.device_endings import DeviceEndings
from foldaway.service.collecting.device_trials import DeviceTrials
from foldaway.service.database.store import Store as Database
from foldaway.service.database.trial_table import TrialRow
from foldaway.service.keys.vault import Vault
from foldaway.tallies import Lean, arms_of
from foldaway_device import ServerError, StateError
from foldaway_device.folder import FolderStore
from foldaway_device.state import MemoryStore
from in_process import DirectLink
from mishaps import Killed, Mishaps, Seen

MODES = ("one-message", "scores", "delta", "sums")
DEVICES = 5
MOST_RECORDS = 3

_VAULT = Vault([bytes(range(32))])


@dataclass
class Tale(Seen):
    """What became of the devices of some schedules.

    Attributes:
        missing: Devices that are reported missing.
        never: Those that the coordinator never heard of.
    """

    missing: int = 0
    never: int = 0


class Coordinator:
    """The real coordinator, which forgets what is not durable when it crashes."""

    def __init__(self, folder: Path, plan: fa.Plan) -> None:
        self._folder = folder
        self.plan = plan
        self._open()
        self._database.create_trial(plan, None)

    def _open(self) -> None:
        self._database = Database.open(str(self._folder), _VAULT)
        answers = Answers(self._database)
        self._end, answers.end = answers.end, self._keep  # type: ignore[assignment,method-assign]
        self.trials = DeviceTrials(self._database, "main", answers)
        self.endings = DeviceEndings(self._database, answers, self.trials)

    def crash(self) -> None:
        self._database.close() if hasattr(self._database, "close") else None
        self._open()

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        return DirectLink(self.trials, self.plan).ask(method, path, body, until=0.0)

    def end(self, deadline: float) -> None:
        self.endings.end(self.plan, EndRequest(deadline=deadline, without_effects=True))

    def _keep(self, answer: Answer, *rest: Any) -> TrialRow:
        assert answer.federated is not None
        self.found = answer.federated
        self.trial = self.trials.whole(self.plan, pending=True)[0].trial  # the end deletes them
        return self._end(answer, *rest)


class Schedule(Mishaps[Tale]):
    """One trial in which things go wrong.

    Args:
        folder: An empty folder.
        seed: Chooses the plan, the records and all that happens.
        files: Whether devices keep their state in files, or in memory that outlives their kills.
    """

    def __init__(self, folder: Path, seed: int, *, files: bool = False) -> None:
        chance = random.Random(seed)
        mode = MODES[seed % len(MODES)]
        plan = fa.Plan(
            name="schedule",
            arm="group",
            arms={"a": 0.5, "b": 0.5},
            outcomes=["mark", "y"],
            federated=mode,  # type: ignore[arg-type]
            # Mode scores publishes nothing of an arm of less than a cohort.
            privacy=fa.Privacy(
                cohort=chance.choice([1, 1, 2] if mode == "scores" else [1, 2, 3]),
                smallest_cell=1,
            ),
        )
        stores = [FolderStore(folder / "devices" / str(i)) if files else MemoryStore() for i in range(DEVICES)]
        for store in stores:
            device_in(plan, None, store=store)
        super().__init__(chance, plan, stores, Tale(schedules=1), kills=0.03)
        self.coordinator = Coordinator(folder / "trials", plan)
        self._on_the_way: list[tuple[str, bytes]] = []
        sizes = [chance.randint(1, MOST_RECORDS) for _ in range(DEVICES)]
        rng = np.random.default_rng(seed)
        self._records = [
            [{"mark": 4.0 ** (i * MOST_RECORDS + k), "y": float(rng.normal())} for k in range(size)]
            for i, size in enumerate(sizes)
        ]

    # What goes wrong.

    def ask(self, method: str, path: str, body: bytes | None = None, *, until: float) -> bytes:
        """The network."""
        if body is None:
            return self.coordinator.ask(method, path)
        self._strike("killed before a message")
        self._on_the_way.append((path, body))  # it may come again at any time
        if self._happens("message lost or late", 0.1):
            raise ServerError("the server cannot be reached (ReadTimeout).")
        if self._happens("coordinator crashed before a message", 0.05):
            self.coordinator.crash()
        answer = self.coordinator.ask(method, path, body)
        if self._happens("coordinator crashed after a message", 0.05):
            self.coordinator.crash()
        self._strike("killed before the answer")
        if self._happens("answer lost", 0.1):
            raise ServerError("the server cannot be reached (ReadError).")
        return answer

    def _old_message(self) -> None:
        if self._on_the_way:
            self.tale.events["old message came again"] += 1
            with suppress(ServerError):
                self.coordinator.ask("POST", *self._chance.choice(self._on_the_way))

    # What devices do.

    def _live(self, i: int) -> None:
        """A device records what it has not recorded, and reports."""
        try:
            device = self._device(i)
            for record in self._records[i][device.status.records :]:
                if device.status.settled:
                    return
                device.record(record)
                if self._chance.random() < 0.3:
                    return
            device.report()
        except Killed:
            self._devices[i] = None
        except ServerError as refused:
            if refused.status is not None:
                raise
        except StateError:
            pass  # it has reported, and takes no more

    def _rough(self, steps: int) -> None:
        for _ in range(steps):
            what = self._chance.random()
            if what < 0.8:
                self._live(self._chance.randrange(DEVICES))
            elif what < 0.95:
                self._old_message()
            else:
                self.tale.events["coordinator crashed"] += 1
                self.coordinator.crash()

    def run(self) -> Tale:
        """Run it to its end, and judge."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fa.SampleRatioWarning)
            self._rough(self._chance.randint(5, 30))
            if self.plan.mode == "scores" or self._chance.random() < 0.5:
                self.coordinator.end(600.0)
                self._rough(self._chance.randint(5, 30))
            self.coordinator.end(0.0)
            for _ in range(5):
                self._old_message()
            self._calm = True
            self._judge()
        return self.tale

    # What came of it.

    def _judge(self) -> None:
        tallied = self._digits()
        about = self.coordinator.found
        enrolled, reported = sum(about.enrolled.values()), sum(about.reported.values())
        scores = self.plan.mode == "scores"
        states = []
        for i, records in enumerate(self._records):
            taken = self._device(i).status.records
            state = self._device(i).report().state
            states.append(state)
            mine = tallied[i * MOST_RECORDS : i * MOST_RECORDS + len(records)]
            self._require(max(mine) <= 1, f"a record is counted {max(mine)} times")
            if not scores:
                expected = 1 if state == "counted" else 0
                self._require(set(mine[:taken]) <= {expected}, f"a device that was {state} is in the tallies as {mine}")
                self._require(not any(mine[taken:]), "a record that was not taken is in the tallies")
            self.tale.devices += taken > 0
        counted = states.count("counted")
        self._require(counted == reported, f"{counted} devices know that they are counted, and {reported} are")
        self._require(sum(about.missing.values()) == enrolled - reported, "the missing do not add up")
        self._require(enrolled <= DEVICES, f"{enrolled} devices of {DEVICES} are enrolled")
        if scores and about.integrity is not None:
            self._require(about.integrity.verdict != "altered", "the replies do not add up to the moments")
            fully = enrolled == reported
            self._require(not fully or about.integrity.verdict == "all here", "all are here, but they do not add up")
        self.tale.counted += counted
        self.tale.missing += enrolled - reported
        self.tale.never += self.tale.devices - enrolled

    def _digits(self) -> list[int]:
        """How often each record is in the tallies."""
        trial, total = self.coordinator.trial, 0
        if isinstance(trial.tallies, Lean):
            total = round(trial.tallies.sums.totals(0).sum())
        for arm in arms_of(trial.tallies):
            if arm.n:
                R = arm.raw_factor()
                total += round(float(R[:, 0] @ R[:, 1]))
        return [total // 4**i % 4 for i in range(DEVICES * MOST_RECORDS)]
