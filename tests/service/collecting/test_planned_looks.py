"""A plan with planned looks, on a server."""

from __future__ import annotations

import pytest

import foldaway as fa
from foldaway.errors import PlanError
from foldaway.service.collecting.service import Service
from foldaway.sources.formats.body import Limits
from plans import LOOKED
from stores import Place


def test_a_server_refuses_planned_looks_that_it_could_not_take(place: Place) -> None:
    store = place.open()
    service = Service(store, "main", Limits())
    with pytest.raises(PlanError, match="a server cannot take planned looks yet"):
        service.create(fa.Plan(**LOOKED).to_toml())
    assert list(store.trials()) == []
