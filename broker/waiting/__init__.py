"""Waiting: for a job's end, for many ends at once, and for Redis to come back."""
