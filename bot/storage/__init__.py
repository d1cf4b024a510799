"""The statements of each aggregate: what is read and written of it."""
