"""SHA-256 of identifiers under a group key, as any database computes it: for plans whose records may stay in one."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from foldaway.records.columns import as_numpy


def sha256_identifiers(column: pa.Array, key: bytes) -> NDArray[np.uint64]:
    """A number for each identifier, of which each different one is hashed once.

    Its lowest bits are the number that the first three hexadecimal digits of SHA-256(key ‖ identifier) spell, so that
    the remainder by the number of groups is the group. Numbers are hashed as their decimal text.

    Args:
        column: What `foldaway.records.values.identifiers` gives, without nulls.
        key: The group key.

    Example:
        >>> numbers = sha256_identifiers(pa.array([17, 17, 4]), b"key")
        >>> [f"{int(number) % 4096:03x}" for number in numbers]
        ['aa9', 'aa9', 'a4b']
        >>> sha256(b"key17").hexdigest()[:3]
        'aa9'
    """
    encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    if pa.types.is_dictionary(encoded.dictionary.type):
        return np.take(sha256_identifiers(encoded.dictionary, key), as_numpy(encoded.indices))
    keyed = sha256(key)
    of_entry = np.empty(len(encoded.dictionary), dtype=np.uint64)
    for place, name in enumerate(encoded.dictionary.to_pylist()):
        hashed = keyed.copy()
        hashed.update(name if isinstance(name, bytes) else str(name).encode(errors="surrogatepass"))
        digest = hashed.digest()
        # The first three digits, and below them the rest of eight bytes that lie after these.
        of_entry[place] = int.from_bytes(digest[2:10]) >> 12 << 12 | int.from_bytes(digest[:2]) >> 4
    return np.take(of_entry, as_numpy(encoded.indices))
