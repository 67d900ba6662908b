"""Is every message of a stream counted exactly once, however often its consumer is killed?

`foldaway consume` is killed with SIGKILL at random moments while messages come, and started again. Every message has a
digit of its own in the final tallies, which says how often it was counted.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# One thread for linear algebra: consumers and brokers share the cores.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from studies import findings  # noqa: E402
from studies.findings import Findings, options_of, publish  # noqa: E402

NAME = "consumers"
BROKERS = {"nats": "NATS JetStream", "redis": "Redis Streams", "kafka": "Kafka (librdkafka's test broker)"}


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, kills=50, batches=256, seed=1)
    rows, right = [], True
    for kind, told in BROKERS.items():
        tale = _kill_often(kind, options.kills, options.batches, options.seed)
        wrong = {times: messages for times, messages in tale.counted.items() if times != 1}
        right = right and not wrong and not tale.held and tale.apart < 1e-9
        rows.append(
            [
                told,
                f"{tale.kills:,}",
                f"{tale.batches:,}",
                f"{tale.records:,}",
                f"{tale.counted[1]:,}",
                f"{tale.counted[0]:,}",
                f"{sum(messages for times, messages in wrong.items() if times > 1):,}",
                f"{tale.held:,}",
                f"{tale.states:,}",
                f"{tale.step:,}",
                f"{tale.apart:.0e}",
            ]
        )
    if not right:
        sys.exit(
            f"A message was lost, counted twice or left at its broker, or an effect is not that of one pass: {rows}"
        )
    publish(_findings(rows), NAME, options)
    if options.write:
        page = findings.PAGES / f"{NAME}.md"
        same = "the seed makes it the same in every run."
        page.write_text(page.read_text("utf-8").replace(same, "the moments differ from run to run."), encoding="utf-8")


def _kill_often(kind: str, kills: int, batches: int, seed: int):  # type: ignore[no-untyped-def]
    from brokers import KINDS, missing
    from killing import kill_often
    from servers import Nursery

    if missing(kind):
        sys.exit(f"This study needs a broker: {missing(kind)}.")
    server = KINDS[kind]()
    with tempfile.TemporaryDirectory(prefix="consumers-") as folder, Nursery() as nursery:
        try:
            server.start()
            rng = random.Random(f"{seed} {kind}")
            tale = kill_often(server, nursery, Path(folder), f"killed-{kind}", kills, rng, batches)
        finally:
            server.remove()
    print(
        f"{kind}: {tale.kills} kills, counted {dict(tale.counted)}, {tale.seconds:.0f} s", file=sys.stderr, flush=True
    )
    return tale


def _findings(rows: Sequence[Sequence[str]]) -> Findings:
    return Findings(
        "Consumers",
        """Messages of 2 to 58 records, as JSON, newline-delimited JSON and Arrow, wait at a broker and keep arriving
        while `foldaway consume --delete` reads them with a cohort of 100. The consumer is killed with SIGKILL and
        started again, over and over. In a third of the cases it is killed at a random moment of its first half second.
        Otherwise it is killed just after it has written a state, which is when it acknowledges and deletes messages, or
        after five seconds if too few records for a state have come. The last consumer is not killed and ends with
        `--end`. The consumers are forked from a process that has already loaded foldaway, so that they start sooner.

        Every message has a digit of its own: one of its records has 4^i in one of the outcomes, where all others have
        0. In base 4, the sum of that outcome says how often each message was counted.

        NATS and Redis are the real servers and write to files. Kafka is the test broker that comes with librdkafka,
        which keeps everything in memory and cannot delete records; for it, “left at the broker” counts records that no
        committed offset covers. “States” counts the states found in the store after a kill, and “step” is the smallest
        number of records between two of them.

        “Difference” is the largest difference between an effect or a standard error and that of all records folded in
        one pass, relative to the effect, or to its error where that is larger.""",
        [
            "broker",
            "kills",
            "messages",
            "records",
            "counted once",
            "lost",
            "counted again",
            "left at the broker",
            "states",
            "step",
            "difference",
        ],
        rows,
        """Every message is in the final tallies once, and no broker still holds one. A test checks the digits
        themselves: a message that is left out or folded twice on purpose shows as 0 or 2
        (`tests/sources/brokers/test_consumer_killed.py`).""",
    )
