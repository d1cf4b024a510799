"""Everything that is stored: the database, its schema, and the statements of each aggregate."""
