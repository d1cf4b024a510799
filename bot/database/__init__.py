"""Run transactions on both engines: group commit, schema and migrations, the audit, leases of processes."""
