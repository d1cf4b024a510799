"""Run several processes on one database: membership, news of turns between them, reloading."""
