"""How Alembic runs the revisions: on the connection that `migrate` gives it, within its transaction."""

from __future__ import annotations

from alembic import context

context.configure(**context.config.attributes)
context.run_migrations()
