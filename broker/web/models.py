"""The answers, in words: what OpenAPI tells of them.

None is checked by these on its way: they are what the command line prints as JSON, and a long list of it must be
quick. Tests hold them against each other.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from broker.web.wanted import Name, State

#: Epoch milliseconds; null where it has not happened, or is not known.
Time = Annotated[int | None, Field(description="epoch ms")]


class Problem(BaseModel):
    """An error (RFC 9457). `rule` is for programs, `detail` for people, `field` names what of the request is wrong."""

    type: str
    title: str
    status: int
    rule: str
    detail: str
    field: str = ""


class Record(BaseModel):
    """What is known of a job. A state with `inferred` is a guess, made in place of `guessed_from`."""

    key: str = Field(examples=["desk/checksum//06mzvsd02r4x"])
    kind: Literal["submitted", "reported"]
    origin: Name
    engine: str
    run: str
    id: str
    state: State
    inferred: bool
    desired: Literal["run", "cancel", "remove"]
    node: str = Field(description="empty where it has no place")
    seq: int
    attempt: int
    tries: int
    rev: str = Field(
        description="the id of the log entry that decided it", examples=["1780000000000-0"]
    )
    created_at: Time
    started_at: Time
    completed_at: Time
    last_seen: Time
    error: str | None
    model: str
    requester: str
    rule: str = Field(examples=["submitted"])
    by: str
    guessed_from: str
    guessed_at: Time
    deaths: int
    attempts: int
    priority: int
    timeout: int = Field(description="ms that a try may run; 0 = no limit")
    at_most_once: bool
    due: Time
    placed_at: Time
    holder: str
    worker: str
    reason: str
    retry_of: str
    sightings: int


class Listed(Record):
    """A record as a list shows it."""

    suspect: bool = Field(description="it runs, and its worker misses beats: `running?`")


class Refusal(BaseModel):
    """The refused events of a job by one rule, of one kind and state: the newest, and how many there were."""

    rule: str
    event: str
    state: str
    node: str
    seq: int
    attempt: int
    by: str
    at: int
    count: int


class Shown(Listed):
    """A job whole. `payload` is there for a submitted one, `extras` for a reported one; null once they are gone."""

    payload: Any = None
    extras: Any = None
    refused: list[Refusal]


class Outcome(BaseModel):
    """The answer to one event, and the rule that gave it."""

    key: str
    outcome: Literal["applied", "duplicate", "refused", "error"]
    rule: str = Field(examples=["desired"])
    rev: str


class Retried(Outcome):
    """The same of a job that was to be handed in again; `new_key` names the job made of it, if one was."""

    new_key: str


class Deciding(BaseModel):
    """The event that decided a job's state."""

    rev: str
    rule: str
    by: str
    at: int
    reason: str


class GivenUp(BaseModel):
    """An attempt whose word counts no more."""

    attempt: int
    node: str
    worker: str
    at: int
    event: str
    rule: str
    error: str


class Why(BaseModel):
    """What decided a job's state, what was refused, and what would change it."""

    key: str
    record: Listed | None
    deciding: Deciding | None
    tombstone: int | None
    refused: list[Refusal]
    given_up: list[GivenUp]
    untold: int
    next: list[str]


class Chunk(BaseModel):
    """One entry of a job's output: text, or how far it is as a number from 0 to 1."""

    id: str
    attempt: int
    what: str = Field(description="`chunk` or `progress`")
    text: str


class Entry(BaseModel):
    """One accepted event; `record` is null where it took the job away."""

    rev: str
    at: int
    event: str
    rule: str
    by: str
    key: str
    generation: int | None
    record: Record | None


class Timeline(BaseModel):
    """What happened to a job, oldest first. `whole`: from its beginning on."""

    entries: list[Entry]
    refused: list[Refusal]
    whole: bool


class Change(BaseModel):
    """The data of a `change` event: a job's newest state, null where it is gone."""

    key: str
    rev: str
    event: str
    rule: str
    by: str
    synthesized: bool
    record: Record | None
