"""Benchmarks of the running service against a bare loop, with the outside world in processes of its own."""
