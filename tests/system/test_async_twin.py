"""The asyncio client has every name of the other one, with the same signature and the same words."""

from __future__ import annotations

import inspect

import pytest

from broker import (
    AsyncBroker,
    AsyncJob,
    AsyncReader,
    AsyncReaders,
    AsyncSubscription,
    Broker,
    Job,
    Reader,
    Readers,
    Subscription,
)
from broker.aio.catalog import AsyncLog
from broker.aio.client import AsyncReporter
from broker.jobs.reporting import Reporter
from broker.store.log import Log

TWINS = [
    (Broker, AsyncBroker),
    (Job, AsyncJob),
    (Readers, AsyncReaders),
    (Reader, AsyncReader),
    (Subscription, AsyncSubscription),
    (Log, AsyncLog),
    (Reporter, AsyncReporter),
]

#: What waits in the event loop has no use for it, or takes a bell of its own.
APART = {
    (Reader, "snapshot_if_listed"): "`snapshot` awaits",
    (Readers, "open"): "the event loop is the bell",
}


def public(kind):
    return [name for name in dir(kind) if not name.startswith("_")]


NAMES = [(one, twin, name) for one, twin in TWINS for name in public(one)]
IDS = [f"{one.__name__}.{name}" for one, _, name in NAMES]


@pytest.mark.parametrize("one, twin, name", NAMES, ids=IDS)
def test_every_public_name_has_a_twin_that_says_what_it_does(one, twin, name):
    if (one, name) in APART and name != "open":
        return
    found = getattr(twin, name, None)
    assert found is not None, f"{twin.__name__} has no {name}"
    assert inspect.getdoc(found), f"{twin.__name__}.{name} says nothing"
    is_property = isinstance(inspect.getattr_static(one, name), property)
    assert isinstance(inspect.getattr_static(twin, name), property) == is_property


@pytest.mark.parametrize("one, twin, name", NAMES, ids=IDS)
def test_every_call_takes_the_same(one, twin, name):
    if (one, name) in APART or not callable(getattr(one, name)):
        return
    assert taken(one, name) == taken(twin, name)


def taken(kind, name):
    parameters = inspect.signature(getattr(kind, name)).parameters.values()
    return [(each.name, each.kind, each.default) for each in parameters]


#: What asks Redis for nothing, or lets a thread do it.
AT_ONCE = {"close", "log", "watch", "readers", "reporter", "subscribe", "add", "open", "check"}


@pytest.mark.parametrize("one, twin, name", NAMES, ids=IDS)
def test_every_call_that_asks_redis_is_awaited(one, twin, name):
    if (one, name) in APART or not callable(getattr(one, name)):
        return
    found = inspect.unwrap(getattr(twin, name), stop=is_awaited)
    assert is_awaited(found) or name in AT_ONCE


def is_awaited(found):
    return inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found)


def test_a_twin_made_of_a_call_shares_its_words():
    assert AsyncBroker.why.__doc__ == Broker.why.__doc__
    assert AsyncBroker.select.__doc__ == Broker.select.__doc__


def test_what_is_said_apart_is_there():
    assert all(hasattr(kind, name) for kind, name in APART)
