"""Failures made on purpose, and what must hold all the same.

Each module below is one family of failures; a function marked `@row("name", long=..., short=...)` is one row: it is
given a `Run` (a seeded chance, a count, a fleet of real processes on a Redis of its own) and does its damage `count`
times. What must hold is asked of `checks.py` when all is at rest. It returns counts and times, which are printed.

`scripts/chaos` runs the long form of each row or of those named; `tests/system/test_chaos.py` the short form.
A run prints its seed; `--seed` repeats what was done, as far as the machine's own timing lets it.
"""
