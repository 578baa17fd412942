"""What may be a handler, and what counts as its failure: nothing is ever acknowledged that nobody handled."""

from __future__ import annotations

import asyncio
import functools

import pytest

from broker import AsyncSubscription
from broker.errors import Invalid
from broker.store.parked import parked
from tests.store.readers import until
from tests.system.subscriber import Ledger, broker_with, desk_of, subscribed


async def coroutine_function(_delivery):
    """Called without being awaited, it does nothing."""


def generator_function(_delivery):
    yield


async def async_generator_function(_delivery):
    yield


class Awaitable:
    def __await__(self):
        yield


class Awaited:
    async def __call__(self, _delivery):
        """As above."""


def function(_delivery):
    """It would run, and then be awaited in vain."""


NO_FUNCTIONS = [
    coroutine_function,
    functools.partial(coroutine_function),
    Awaited(),
    generator_function,
    async_generator_function,
    None,
    "told",
]
NO_COROUTINE_FUNCTIONS = [function, functools.partial(function), Ledger(), None]


@pytest.mark.parametrize("handler", NO_FUNCTIONS, ids=lambda it: type(it).__name__)
def test_what_would_do_nothing_is_no_handler(broker, handler):
    with pytest.raises(Invalid, match="function"):
        broker.subscribe("g", handler)
    with pytest.raises(Invalid, match="on_gone"):
        broker.subscribe("g", function, on_gone=handler or 3)
    assert not broker.store.client.exists(broker.store.keys.groups)


@pytest.mark.parametrize("handler", NO_COROUTINE_FUNCTIONS, ids=lambda it: type(it).__name__)
def test_what_gives_nothing_to_await_is_no_handler_for_asyncio(broker, handler):
    async def subscribe(**what):
        AsyncSubscription(broker, "g", **what)

    with pytest.raises(Invalid, match="handler must be a coroutine function"):
        asyncio.run(subscribe(handler=handler))
    with pytest.raises(Invalid, match="on_gone must be a coroutine function"):
        asyncio.run(subscribe(handler=coroutine_function, on_gone=handler or 3))


@pytest.mark.parametrize("origins", [[], iter(())], ids=["list", "iterator"])
def test_no_origins_are_no_subscription(broker, origins):
    with pytest.raises(Invalid, match="origins"):
        broker.subscribe("g", function, origins=origins)


@pytest.mark.parametrize(
    "what",
    [
        coroutine_function,
        generator_function,
        async_generator_function,
        lambda _delivery: Awaitable(),
    ],
    ids=["coroutine", "generator", "async generator", "awaitable"],
)
def test_what_is_given_back_to_be_run_by_nobody_is_a_failure(broker, what):
    desk_of(broker).report("a")
    with subscribed(broker, "g", lambda delivery: what(delivery), tries=1):  # noqa: PLW0108
        until(lambda: parked(broker.store, "desk", "g"))
    [one] = parked(broker.store, "desk", "g")
    assert "which nobody runs" in one.reason


def test_an_error_that_cannot_be_told_is_a_failure_like_any_other(broker):
    class UntoldError(Exception):
        def __str__(self):
            raise RuntimeError

    def fail(delivery):
        told.append((delivery.id, delivery.tries))
        if delivery.id == "a":
            raise UntoldError

    told = []
    desk = desk_of(broker)
    with subscribed(broker, "g", fail, tries=2):
        desk.report_many("ab")
        until(lambda: told and told[-1][0] == "b")
    assert told == [("a", 1), ("a", 2), ("b", 1)]
    [one] = parked(broker.store, "desk", "g")
    assert one.reason.startswith("UntoldError: ")


def test_while_a_handler_runs_its_group_is_known_to_live(store, namespace):
    """Else its unread events would be trimmed, as those of a group without members."""
    with broker_with(store, namespace, lease_ms=300) as broker:
        ledger = Ledger(blocks="a")
        desk_of(broker).report("a")
        with subscribed(broker, "g", ledger):
            until(lambda: ledger.ids == ["a"])
            before = int(store.client.hget(store.keys.groups, "g"))
            until(lambda: int(store.client.hget(store.keys.groups, "g")) > before + 300)
            ledger.go.set()


def test_an_entry_that_cannot_be_parked_is_not_handed_over_again(store, namespace):
    with broker_with(store, namespace, lease_ms=300) as broker:
        ledger = Ledger(fails="a")
        desk = desk_of(broker)
        store.client.set(desk.keys.parked("g"), "of another type")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("broker.subscriptions.leases.DAMAGED_MS", 100)
            with subscribed(broker, "g", ledger, tries=2):
                desk.report_many("ab")
                terms = set()
                until(
                    lambda: (
                        terms.add(store.client.hget(desk.keys.sub("g"), "term")) or len(terms) > 3
                    )
                )
                store.client.delete(desk.keys.parked("g"))
                until(lambda: ledger.ids[-1] == "b")
    assert ledger.ids == ["a", "a", "b"]
