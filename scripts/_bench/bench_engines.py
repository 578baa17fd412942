"""The job that does nothing: as an engine of ours, and as a function for a bare RQ worker."""

from __future__ import annotations

from workers import Context, engine


@engine("noop")
def noop(ctx: Context, payload: object) -> None:
    """Do nothing."""
    del ctx, payload


def bare_noop(payload: object) -> None:
    """Do nothing."""
    del payload
