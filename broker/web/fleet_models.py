"""The fleet in words: what OpenAPI tells of nodes, groups, and of how it all stands."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from broker.web.models import Entry, Time


class Worker(BaseModel):
    """A worker: one slot of its engine."""

    name: str
    engine: str
    pid: int
    started_at: Time
    beaten_at: int
    suspect: bool
    job: str | None = Field(description="the key of what it runs")


class Slots(BaseModel):
    """How many jobs of one engine a node can run, and runs."""

    slots: int
    running: int


class Node(BaseModel):
    """A machine of the fleet. `suspect` is its silence, `left` that its workers said farewell before."""

    node: str
    flag: Literal["drained", "dead"] | None
    suspect: bool
    left: bool
    beaten_at: Time
    silent_ms: int | None
    slots: int
    running: int
    pressure: int
    models: list[str]
    engines: dict[str, Slots]
    workers: list[Worker]


class Group(BaseModel):
    """A group of subscribers at one origin: who reads, and how far behind. Null is what is not known, or not there."""

    group: str
    origin: str | None
    owner: str | None
    live: bool
    term: int | None
    looked_at: Time
    silent_ms: int | None
    acked: str | None
    gone: str | None
    lag_entries: int | None
    lag_ms: int | None
    pending: int
    tries: int
    parked: int
    replaying: int
    evicted: int
    gaps: int


class Parked(BaseModel):
    """An entry whose handler failed for good. `entry` is null where it cannot be read; `fields` is what it says."""

    group: str
    origin: str
    id: str
    rev: str
    at: Time
    tries: int
    reason: str
    entry: Entry | None
    fields: dict[str, str] | None


class Failures(BaseModel):
    """Failed jobs whose errors say the same, but for numbers and names."""

    error: str
    cut: bool = Field(description="whether it may be only the beginning: a record keeps 64 bytes")
    count: int
    newest_key: str
    newest_at: Time


class Rates(BaseModel):
    """How much came and went in the last minutes."""

    submitted_per_min: float
    ended_per_min: float
    failed_share: float | None = Field(description="of those that ended")


class Leader(BaseModel):
    """Who leads a role: its term, and whether somebody holds it now."""

    term: int
    held: bool


class Overview(BaseModel):
    """How it all stands. What could not be read is told in `damaged`, a line each."""

    at: int
    list_age_ms: int | None = Field(
        description="since the list that is counted here held all that was logged: below 3,000 in health; "
        "null where it never did"
    )
    jobs: dict[str, int] = Field(description="by state, and `guess` and `doubt` among them")
    ready: int
    oldest_ready_ms: int | None
    delayed: int
    placed: int
    wanted: dict[str, int] = Field(description="slots that jobs could use now, by engine")
    occupied: dict[str, int]
    slots: dict[str, int]
    rates: Rates
    failures: list[Failures]
    audit: dict[str, int | None] | None = Field(
        description="what the auditor last found; null before"
    )
    redis: dict[str, Any]
    leaders: dict[str, Leader]
    origins: list[dict[str, Any]]
    halted: list[str] = Field(
        description="what keeps the fleet from moving on, the cause first: Redis takes no writes, or nobody leads a "
        "role; empty in health"
    )
    damaged: list[str]
