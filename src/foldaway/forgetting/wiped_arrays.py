"""NumPy arrays whose memory is overwritten when it is freed.

NumPy takes memory from the C library and keeps small blocks for reuse as they are; and of larger ones the C library,
told to overwrite what is freed, leaves the last eight bytes: the last number of every other array. In a hardened
process Python's own allocator overwrites all of a block (see `harden`), so NumPy is told to take its memory there.

References:
    NEP 49, data allocation strategies. https://numpy.org/neps/nep-0049.html
    https://docs.python.org/3/c-api/memory.html#c.PyMem_GetAllocator
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

NAME = "foldaway_wiped"

_SET_HANDLER = 304  # the number of PyDataMem_SetHandler in NumPy's table of functions, which never changes
_RAW_DOMAIN = 0


class _Handler(ctypes.Structure):
    """PyDataMem_Handler. Its last five words are Python's PyMemAllocatorEx.

    Only the last function differs: NumPy tells `free` the size as well, in a register that nobody looks at.
    """

    _fields_ = (("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("allocator", ctypes.c_void_p * 5))


_handler = _Handler(name=NAME.encode(), version=1)
_capsule_name = ctypes.create_string_buffer(b"mem_handler")
_capsule: Any = None


def wipe_arrays() -> bool:
    """From now on, arrays made in this thread get memory that is overwritten when freed; say whether that is so.

    It is a setting of the thread's context: to be called at the beginning of every thread that handles records.

    Example:
        >>> import contextvars
        >>> contextvars.copy_context().run(wipe_arrays)
        True
    """
    global _capsule
    try:
        if _capsule is None:
            _capsule = _made()
        _set_handler()(_capsule)
    except (AttributeError, ValueError, TypeError):
        return False
    return arrays_are_wiped()


def arrays_are_wiped() -> bool:
    """Whether `wipe_arrays` holds in this thread."""
    return bool(np._core.multiarray.get_handler_name() == NAME)  # type: ignore[attr-defined]


def _made() -> Any:
    api = ctypes.pythonapi
    # The capsule knows the handler and its own name by their addresses only, and arrays may be freed after this
    # module is.
    for kept in (_handler, _capsule_name):
        api.Py_IncRef(ctypes.py_object(kept))
    api.PyMem_GetAllocator(ctypes.c_int(_RAW_DOMAIN), ctypes.byref(_handler, _Handler.allocator.offset))
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return api.PyCapsule_New(ctypes.addressof(_handler), ctypes.addressof(_capsule_name), None)


def _set_handler() -> Any:
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = get_pointer(np._core.multiarray._ARRAY_API, None)  # type: ignore[attr-defined]
    address = ctypes.c_size_t.from_address(table + _SET_HANDLER * ctypes.sizeof(ctypes.c_size_t)).value
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(address)
