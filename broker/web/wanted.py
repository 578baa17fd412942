"""What is sent to us, and its bounds: bodies as they are checked, and the questions of a list."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from broker.jobs.submission import ATTEMPTS, ATTEMPTS_MAX, NAME_BYTES_MAX, SECONDS_MAX
from broker.rules.filter import Filter
from broker.rules.index import PRIORITY_MAX
from broker.rules.jsonl import load
from broker.rules.key import ENGINE_BYTES_MAX, ID_BYTES_MAX, RUN_BYTES_MAX
from broker.web.body import BODY_BYTES_MAX, read_body
from broker.web.problems import Problem
from broker.web.words import complaint, place

if TYPE_CHECKING:
    from broker.web.hub import Hub

#: How many jobs one call may wish something for.
KEYS_MAX = 1_000
#: How many jobs one list may show.
LIMIT_MAX = 100_000
#: Origin and node names.
NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"

#: A whole key as text.
KEY = r"^[a-z0-9][a-z0-9._-]{0,62}/[^/]+/[^/]*/[^/]+$"

State = Literal["queued", "running", "completed", "failed", "cancelled"]
Name = Annotated[str, Field(pattern=NAME, examples=["desk"])]


class Body(BaseModel):
    """What is sent to us: a field that we do not know is refused, and so is a number written as a text."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Submission(Body):
    """A job for our workers. `id` is the idempotency: the same id and payload is the same job."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"engine": "checksum", "payload": {"path": "/etc/hostname"}}]
        }
    )

    engine: str = Field(min_length=1, max_length=ENGINE_BYTES_MAX)
    payload: Any = Field(None, description="any JSON of at most 1 MiB, 64 levels deep")
    origin: Name | None = Field(None, description="without it the node of this server")
    id: str | None = Field(
        None,
        min_length=1,
        max_length=ID_BYTES_MAX,
        description=f"1 to {ID_BYTES_MAX} bytes of UTF-8; without it a new one",
    )
    run: str = Field("", max_length=RUN_BYTES_MAX)
    priority: int = Field(0, ge=-PRIORITY_MAX, le=PRIORITY_MAX)
    attempts: int | None = Field(
        None,
        ge=1,
        le=ATTEMPTS_MAX,
        description=f"tries, 1 to {ATTEMPTS_MAX}; without it {ATTEMPTS}, or 1 with at_most_once",
    )
    timeout: float | None = Field(
        None,
        gt=0,
        le=SECONDS_MAX,
        description=f"seconds that a try may run, above 0, at most {SECONDS_MAX}; without it no limit",
    )
    delay: float = Field(0, ge=0, le=SECONDS_MAX, description="seconds until it may start")
    at_most_once: bool = False
    model: str = Field("", max_length=NAME_BYTES_MAX)
    requester: str = Field("", max_length=NAME_BYTES_MAX)


class Nothing(Body):
    """An empty object: the wish stands in the path."""


class Wish(Body):
    """How a wish is meant."""

    force: bool = Field(
        False, description="at once; a worker that still runs the job is fenced off"
    )


class Keys(Body):
    """Which jobs are meant: whole keys, each once."""

    keys: list[Annotated[str, Field(pattern=KEY)]] = Field(
        min_length=1, max_length=KEYS_MAX, json_schema_extra={"uniqueItems": True}
    )


class Wishes(Keys, Wish):
    """Which jobs are meant, and how."""


class Asked(BaseModel):
    """The questions that every list takes; several `state` ask for any of them. A guess fits by what it replaced."""

    model_config = ConfigDict(extra="forbid")

    state: list[State] = Field([], max_length=16)
    node: Name | None = None
    engine: str | None = Field(None, min_length=1, max_length=ENGINE_BYTES_MAX)
    origin: Name | None = None

    @property
    def filter(self) -> Filter:
        """The same, as every list of ours knows it."""
        states = frozenset(self.state) or None
        return Filter(states=states, node=self.node, engine=self.engine, origin=self.origin)


class AskedJobs(Asked):
    """Which jobs are listed, and how many at most."""

    limit: int = Field(1_000, ge=1, le=LIMIT_MAX)


class AskedChanges(Asked):
    """Which jobs are followed, and whether the state of the fleet comes with them, once a second."""

    pulse: bool = False


M = TypeVar("M", bound=Body)


async def read(request: Request, model: type[M], limit_bytes: int = BODY_BYTES_MAX) -> M:
    """The body of a request; one that has no field which must be there may be empty.

    Raises Problem (400 naming the field, 408, 413), and Malformed.
    """
    hub: Hub = request.app.state.hub
    raw = await read_body(request, limit_bytes)
    reading = partial(load, raw, "the body", limit_bytes)
    value = (await hub.read(reading, len(raw)))[0] if raw else {}
    try:
        return model.model_validate(value)
    except ValidationError as wrong:
        raise _told(wrong) from None


def body_of(model: type[Body]) -> dict[str, Any]:
    """What OpenAPI says of that body."""
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"content": content, "required": True}}


def _told(wrong: ValidationError) -> Problem:
    first = wrong.errors(include_url=False)[0]
    where = place(first["loc"]) or "the body"
    return Problem(400, "invalid", f"{where}: {complaint(first)}", field=where)
