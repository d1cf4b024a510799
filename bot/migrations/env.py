"""Alembic's entry: run the revisions on the connection that `bot.migrate` opened."""

from __future__ import annotations

from alembic import context

from bot.schema import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
