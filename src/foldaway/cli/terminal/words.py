"""Sentences for a person, in lines that fit a terminal."""

from __future__ import annotations

import codecs
import sys
from textwrap import fill

import typer

from foldaway.errors import FoldawayError

WIDTH = 80


class Unconfirmed(FoldawayError):
    """What cannot be undone, asked for where nobody can be asked back."""


# What stands in for a character that an output cannot show, as where Windows writes to a file or a pipe.
_PLAIN = {"−": "-", "─": "-", "≤": "<=", "≥": ">=", "→": "->", "∞": "inf"}


def in_lines(text: str, indent: str = "") -> str:
    """The text in lines of at most 80 columns; those that it has stay, and no word or path is cut.

    The indent stands before every line but the first.

    Example:
        >>> print(in_lines("A site is counted once. If these files are those of another site, it needs a --folder."))
        A site is counted once. If these files are those of another site, it needs a
        --folder.
    """
    lines = (
        fill(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        for line in text.splitlines()
    )
    return "\n".join(lines)


def speak_any_encoding() -> None:
    """Let no character that an output cannot show stop a command: it is written as a plain one, or as ``?``."""
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    unknown = error.object[error.start : error.end]
    return "".join(_PLAIN.get(character, "?") for character in unknown), error.end


def tell(sentence: str) -> None:
    """Say something beside the output: at a terminal in lines; in a file, or for a script that looks for it, in one."""
    if sys.stderr is None:  # it was closed
        return
    printable = sentence.encode(errors="backslashreplace").decode()
    print(in_lines(printable) if sys.stderr.isatty() else printable, file=sys.stderr)


def confirm(question: str, declined: str) -> None:
    """Ask at a terminal before what cannot be undone.

    Raises:
        Unconfirmed: There is no terminal; what comes on standard input is no answer.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise Unconfirmed(f"{declined} This cannot be undone, and there is no terminal to ask at: add --yes.")
    if typer.confirm(question, err=True):
        return
    tell(declined)
    raise typer.Exit(1)


def tell_waiting(problem: Exception) -> None:
    """Say that a server does not answer, and that the request is repeated."""
    sentence = f"{problem} Trying again for up to a minute; control-C stops."
    tell(sentence[0].upper() + sentence[1:])
