"""Shows the navigation on a laptop: the theme hides it in a drawer below 1,220 pixels (76.25 em), here below 1,120.

And keeps a number and its per cent sign on one line in the narrow columns of tables.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

# As the theme's style sheets and scripts write them: from this width on, and up to just below it.
_WIDTHS = {"76.25em": "70em", "76.234375em": "69.984375em"}


_CELL = re.compile(r"<td\b[^>]*>[^<]*</td>")


def on_page_content(html: str, **kwargs: Any) -> str:
    """Called by mkdocs for each page."""
    return _CELL.sub(lambda cell: re.sub(r"(?<=\d) %", "\u00a0%", cell[0]), html)


def on_post_build(config: Any, **kwargs: Any) -> None:
    """Called by mkdocs when the site is written."""
    for file in Path(config["site_dir"], "assets").rglob("*"):
        if file.suffix in (".css", ".js"):
            text = file.read_text(encoding="utf-8")
            for theirs, ours in _WIDTHS.items():
                text = text.replace(theirs, ours)
            file.write_text(text, encoding="utf-8")
