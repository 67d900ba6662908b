"""HTML from Python: elements nest, and whatever is not HTML already is escaped on its way in."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | Iterable["Child"] | None
"""What an element may hold: HTML, text to be escaped, nothing, or several of these."""


def html(*children: Child) -> Html:
    """Children one after the other.

    Example:
        >>> html("1 < 2", [Html("<br>"), None])
        '1 &lt; 2<br>'
    """
    return Html("".join(_flat(child) for child in children))


def tag(name: str, *children: Child, **attributes: str | float | bool | None) -> Html:
    """An element; ``class_`` is the attribute class, ``aria_label`` is aria-label, None and False leave one out.

    Example:
        >>> tag("p", "a < b", tag("em", "so"), class_="note", hidden=True, title=None)
        '<p class="note" hidden>a &lt; b<em>so</em></p>'
    """
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    return Html(f"<{name}{given}>{html(*children)}</{name}>")


def named(text: str) -> Html:
    """A name that someone chose: set apart, so that its direction of writing cannot reorder what stands around it.

    Example:
        >>> named("<b>")
        '<bdi>&lt;b&gt;</bdi>'
    """
    return tag("bdi", text)


def prose(text: str) -> Html:
    """A sentence whose words between backticks are code.

    Example:
        >>> prose("Set `cohort = 64`.")
        'Set <code>cohort = 64</code>.'
    """
    return html(tag("code", part) if i % 2 else part for i, part in enumerate(text.split("`")))


def listed(parts: Iterable[Child], last: str = "and") -> Html:
    """Parts as one does in a sentence.

    Example:
        >>> listed(["a", "b", "c"]), listed(["a"])
        ('a, b and c', 'a')
    """
    items = [html(part) for part in parts]
    if len(items) < 2:
        return html(*items)
    return html(Html(", ".join(items[:-1])), f" {last} ", items[-1])


def _flat(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, str):
        return child if isinstance(child, Html) else escape(child)
    return "".join(_flat(each) for each in child)


def _attribute(key: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
