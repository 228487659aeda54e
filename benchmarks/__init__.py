"""Benchmarks: seeded, in one process, reported as ratios. `python -m benchmarks [name ...]`."""
