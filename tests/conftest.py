"""Fixtures that several rooms' tests use."""

from __future__ import annotations

from postgres import postgres
from served import served_from

__all__ = ["postgres", "served_from"]
