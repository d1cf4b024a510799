"""Benchmark the running service against a bare loop; fakes run in separate processes."""
