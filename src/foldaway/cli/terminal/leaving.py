"""How a command ends: with a sentence where it was stopped or has failed, and always with an exit code."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import NoReturn

from foldaway.cli.terminal.words import tell
from foldaway.errors import instead_of

INTERRUPTED = 130
"""The exit code of a command that control-C has stopped, as shells have it."""


class Interrupted(Exception):
    """Control-C has stopped a command, which has a sentence about it."""


def interruptible(sentence: str) -> instead_of:
    """Have a sentence of its own said if control-C stops what is in the block."""
    return instead_of(KeyboardInterrupt, Interrupted(sentence))


def tell_unwritten(error: OSError) -> int:
    """Say that there is no room for the output; give the exit code."""
    tell(f"error: the output could not be written: {error.strerror}.")
    return 1


def leave(code: int) -> NoReturn:
    """End the process, with everything written and all done that is to be done at an end.

    But Python is not taken down. When a read has just ended or been stopped, a thread of Arrow's may still be about
    to give back memory of Python's; if it asks for Python's lock while Python goes down, the process aborts.
    """
    atexit._run_exitfuncs()
    try:
        if sys.stdout is not None:  # or else it was closed
            sys.stdout.flush()
    except BrokenPipeError:
        pass  # the reader, such as `head`, has seen enough
    except OSError as error:
        code = code or tell_unwritten(error)
    with suppress(OSError, AttributeError):
        sys.stderr.flush()
    os._exit(code)
