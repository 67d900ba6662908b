"""Fixtures that several rooms' tests use."""

from __future__ import annotations

from browser import browser
from postgres import postgres
from served import served_from

__all__ = ["browser", "postgres", "served_from"]
