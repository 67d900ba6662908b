"""This server as one of the two of mode shares: its role, its keys, and how it talks to the other.

Requests go from the leader to the helper. Each carries the hash of its body, authenticated under the key that only the
two can derive, so the helper knows whose a body is before it reads any of it. Answers are authenticated likewise.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from hashlib import sha256
from hmac import compare_digest
from http import HTTPStatus
from typing import Literal, TypeVar

import msgspec

from foldaway.errors import IngestError, Unavailable, instead_of
from foldaway.federated.messages import Closing, DeviceMessage, ReportBatch
from foldaway.federated.modes import mode_of
from foldaway.federated.summands.sealing import KeyPair, Role, info_of, mac
from foldaway.plan import Plan
from foldaway.service.collecting.posting import HttpPost, Post

Asks = Literal["batches", "closing"]

T = TypeVar("T")

_ROLES: tuple[Role, Role] = ("leader", "helper")


class Partner:
    """This server's part in one trial.

    Attributes:
        role: What it is there.
    """

    def __init__(self, plan: Plan, role: Role, keys: KeyPair, post: Post) -> None:
        assert plan.federated is not None
        self._plan, self.role, self._keys, self._post = plan, role, keys, post
        other = plan.federated.pair[1 - _ROLES.index(role)]
        self._url = f"{other.url}/v1/trials/{plan.name}"
        self._key = keys.with_other(b64decode(other.key), plan.fingerprint.encode())

    def open(self, message: DeviceMessage, group: int, sealed: bytes) -> bytes:
        """This server's half of a report.

        Raises:
            MessageError: It was not made for this.
        """
        return self._keys.open(sealed, info_of(self._plan.fingerprint, self.role, message.number, message.arm, group))

    # Of the leader.

    def ask(self, what: Asks, body: ReportBatch | Closing, answer: type[T]) -> T:
        """Ask the helper.

        Raises:
            IngestError: It refuses.
            Unavailable: It cannot be reached.
        """
        data = msgspec.json.encode(body)
        asked = sha256(data).digest()
        status, content, proof = self._post(f"{self._url}/{what}", data, self._proof(what, asked))
        if status != HTTPStatus.OK:
            raise self._refused(status, content)
        unexpected = Unavailable(f"the answer of {self._url} is not the helper's: is its address right in the plan?")
        if not compare_digest(proof.encode(), self.answers(what, asked, content).encode()):
            raise unexpected
        with instead_of(msgspec.DecodeError, unexpected):
            return msgspec.json.decode(content, type=answer)

    def _refused(self, status: int, content: bytes) -> IngestError:
        with instead_of((ValueError, LookupError, TypeError), Unavailable(f"the helper answered {status}.")):
            said = str(msgspec.json.decode(content)["detail"])
        if status in (503, 429, 408):
            raise Unavailable(f"the helper is busy: {said}")
        return IngestError(409 if status < 500 else 503, f"the helper at {self._url} refuses: {said}")

    # Of the helper.

    def asked(self, what: Asks, header: str) -> bytes:
        """The hash of the body that a request of the leader's has.

        Raises:
            IngestError: It is not the leader's.
        """
        stranger = IngestError(401, "this address is for the leader of the trial, which proves itself by its key.")
        with instead_of(ValueError, stranger):
            found = b64decode(header.partition(" ")[0], validate=True)
        if not compare_digest(header.encode(), self._proof(what, found).encode()):
            raise stranger
        return found

    def answers(self, what: Asks, asked: bytes, content: bytes) -> str:
        """The header that shows an answer to be the helper's."""
        return b64encode(mac(self._key, f"answer to {what}", asked, content)).decode()

    def _proof(self, what: Asks, asked: bytes) -> str:
        return f"{b64encode(asked).decode()} {b64encode(mac(self._key, what, asked)).decode()}"


class Pair:
    """This server's role, and its keys.

    Args:
        role: What it is in all trials of mode shares.
        keys: Its key pair.
        post: How requests reach the helper; by HTTP if left out.
    """

    def __init__(self, role: Role, keys: KeyPair, post: Post | None = None) -> None:
        self.role, self._keys, self._post = role, keys, post or HttpPost()
        self._partners: dict[str, Partner] = {}

    def partner(self, plan: Plan) -> Partner:
        """This server's part in a trial.

        Raises:
            IngestError: The plan has another key for this role.
        """
        if plan.fingerprint not in self._partners:
            assert plan.federated is not None
            key = plan.federated.pair[_ROLES.index(self.role)].key
            if key != b64encode(self._keys.public).decode():
                raise IngestError(
                    409,
                    f"this server is a {self.role}, and the plan has another key for it in `federated.servers`: put "
                    "the key there that `foldaway key new-server` has printed for this server.",
                )
            self._partners[plan.fingerprint] = Partner(plan, self.role, self._keys, self._post)
        return self._partners[plan.fingerprint]


def partner_in(pair: Pair | None, plan: Plan) -> Partner | None:
    """This server's part in a trial of two servers; None in any other.

    Raises:
        IngestError: It is of two servers, and this server is not ready to be one of them.
    """
    if plan.federated is None or not mode_of(plan).two_servers:
        return None
    if pair is None:
        raise IngestError(
            409,
            'this server has no part in trials of mode "shares": make its keys (`foldaway key new-server --data '
            "FOLDER`) and start it with --role leader or --role helper.",
        )
    return pair.partner(plan)
