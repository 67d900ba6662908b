"""Philox4x32-10: the counter-based generator that turns a unit number into its random bits.

The unit number is the 64-bit key, the counter says which 128 bits of the unit's stream are wanted. Neighbouring keys
and counters give unrelated outputs; that is what the generator is made and tested for.

References:
    Salmon, Moraes, Dror and Shaw (2011), Parallel random numbers: as easy as 1, 2, 3. SC '11.
    https://doi.org/10.1145/2063384.2063405
"""

import numpy as np

from foldaway.numerics.kernels.compiling import njit_inline

ROUNDS = 10

# Values of 32 bits are held in 64-bit lanes: their products are then the vector instruction every machine has.
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_STEP_0 = np.uint64(0x9E3779B9)
_STEP_1 = np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@njit_inline
def philox(key: np.uint64, block: np.uint64, stream: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The 128 bits at counter (block, stream) under a key, as two little-endian words.

    Args:
        key: the unit number.
        block: which 128 bits of the stream.
        stream: keeps apart what is drawn for different purposes.

    Example:
        >>> low, high = philox(np.uint64(0), np.uint64(0), np.uint64(0))  # the first published vector
        >>> hex(low), hex(high)
        ('0xe169c58d6627e8d5', '0x9b00dbd8bc57ac4c')
    """
    key_0 = key & _LOW
    key_1 = key >> _HALF
    c0, c1, c2, c3 = block & _LOW, block >> _HALF, stream & _LOW, stream >> _HALF
    for _ in range(ROUNDS):
        product_0 = _MULTIPLIER_0 * c0
        product_1 = _MULTIPLIER_1 * c2
        c0, c1 = (product_1 >> _HALF) ^ c1 ^ key_0, product_1 & _LOW
        c2, c3 = (product_0 >> _HALF) ^ c3 ^ key_1, product_0 & _LOW
        key_0 = (key_0 + _STEP_0) & _LOW
        key_1 = (key_1 + _STEP_1) & _LOW
    return c0 | (c1 << _HALF), c2 | (c3 << _HALF)
