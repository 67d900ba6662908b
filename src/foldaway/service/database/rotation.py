"""Rotating the master key: in one call, with the server running, and safe to repeat wherever it broke off."""

from __future__ import annotations

from foldaway.errors import VaultError, instead_of
from foldaway.keeping.locks import locked
from foldaway.service.database.store import Store
from foldaway.service.keys.master_key import VARIABLE, add_key, drop_old_keys


def rotate_key(store: Store) -> None:
    """Seal everything under a new key, and forget the old one.

    The key file holds both keys until nothing is sealed under the old one. If its first key is not the one that the
    data is sealed under, somebody, or a rotation that broke off, has put it there for this: it is used. Servers on
    other machines need the new key file; until they have it they take no records, and they lose none.

    Raises:
        VaultError: The new key cannot be written down, or must be given by other means.
    """
    file = store.vault.file
    if file is None:
        if store.sealed_under() == {store.vault.current}:
            raise VaultError(f"the key comes from {VARIABLE}: put a new one before it there, and rotate again.")
        store.rotate(store.vault)
        return
    unusable = "the key file {} cannot be rotated: {}."
    with instead_of(OSError, lambda error: VaultError(unusable.format(file, error.strerror))), locked(file):
        # One rotation of a key file at a time: another could drop the key of this one.
        if store.sealed_under() == {store.vault.reread().current}:
            add_key(file)
        store.rotate(store.vault.reread())
        try:
            drop_old_keys(file)
            return
        except VaultError:
            pass
    raise VaultError(f"all is sealed under the new key, but the old one stays in {file}: remove it by hand.")
