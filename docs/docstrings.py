"""Docstrings for the site, beyond what griffe makes of them by itself."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^( *)Example:$", re.MULTILINE)


class ExampleSections(griffe.Extension):
    """Reads ``Example:`` as griffe's ``Examples:``, a section of code; else it would be prose."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called with each object of the package once it is loaded."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"\1Examples:", obj.docstring.value)
