"""Fixtures that several rooms' tests use."""

from __future__ import annotations

from postgres import postgres

__all__ = ["postgres"]
