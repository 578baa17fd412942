"""Makes the asyncio twin of a class whose calls block: each is the same call, made on a thread and awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial, wraps
from itertools import islice
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Inner = TypeVar("Inner")
Held_co = TypeVar("Held_co", covariant=True)

#: How many values of an iterator one turn on the thread brings.
PAGE = 100

#: Awaits what blocks.
Run = Callable[[Callable[[], T]], Coroutine[Any, Any, T]]


class Twin(Generic[Held_co]):
    """Holds the one that blocks, and knows how to call it."""

    def __init__(self, inner: Held_co, run: Run[Any]) -> None:
        self._inner = inner
        self._run = run


def twin(
    method: Callable[Concatenate[Inner, P], T],
) -> Callable[Concatenate[Twin[Inner], P], Coroutine[Any, Any, T]]:
    """The same call, awaited. Cancelled after it has begun it still ends, and its result is dropped."""

    @wraps(method)
    async def call(self: Twin[Inner], /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await self._run(partial(method, self._inner, *args, **kwargs))
        return result

    return call


def stream(
    method: Callable[Concatenate[Inner, P], Iterator[T]],
) -> Callable[Concatenate[Twin[Inner], P], AsyncIterator[T]]:
    """The same iteration, for `async for`."""

    @wraps(method)
    async def iterate(self: Twin[Inner], /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        values = method(self._inner, *args, **kwargs)
        while page := await self._run(lambda: list(islice(values, PAGE))):
            for value in page:
                yield value

    return iterate
