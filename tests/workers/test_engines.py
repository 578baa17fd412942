"""The engines that come with the project, each through the same suite."""

from __future__ import annotations

import sys
import time

import pytest

from tests.workers.engine_suite import EngineSuite, Ways
from workers.engine import Permanent
from workers.engines.function import FunctionEngine
from workers.engines.process import ProcessEngine


class TestFunction(EngineSuite):
    @pytest.fixture
    def ways(self):
        def fail(ctx, payload):
            raise payload

        def poll(ctx, payload):
            while not ctx.cancelled:
                time.sleep(0.01)

        return Ways(
            works=(FunctionEngine(lambda ctx, payload: {"n": payload}), 1),
            fails=(FunctionEngine(fail), ValueError("no")),
            fails_for_good=(FunctionEngine(fail), Permanent("never")),
            speaks=(FunctionEngine(lambda ctx, payload: ctx.write(payload)), "said", "said"),
            runs_until_stopped=(FunctionEngine(poll), None),
        )


class TestCoroutine(EngineSuite):
    @pytest.fixture
    def ways(self):
        async def work(ctx, payload):
            return payload

        async def fail(ctx, payload):
            raise payload

        async def speak(ctx, payload):
            ctx.write(payload)

        async def poll(ctx, payload):
            while not ctx.cancelled:
                time.sleep(0.01)  # noqa: ASYNC251

        return Ways(
            works=(FunctionEngine(work), 1),
            fails=(FunctionEngine(fail), ValueError("no")),
            fails_for_good=(FunctionEngine(fail), Permanent("never")),
            speaks=(FunctionEngine(speak), "said", "said"),
            runs_until_stopped=(FunctionEngine(poll), None),
        )


def program(code, *argv, permanent=()):
    return ProcessEngine((sys.executable, "-c", code, *argv), frozenset(permanent))


class TestProcess(EngineSuite):
    @pytest.fixture
    def ways(self):
        leave = "import sys; sys.exit(int(sys.argv[1]))"
        return Ways(
            works=(program("print(1)"), None),
            fails=(program(leave, "{code}"), {"code": 3}),
            fails_for_good=(program(leave, "{code}", permanent=[3]), {"code": 3}),
            speaks=(program("print('s\\u00e4id')"), None, "säid\n"),
            runs_until_stopped=(program("import time; time.sleep(600)"), None),
        )
