"""What happens to a few jobs of two origins at random, as fast as one client can say it."""

from __future__ import annotations

import random
from contextlib import suppress

from broker import Broker, Key
from broker.errors import Refused
from tests.system.command import reported

ORIGINS = ("desk", "elsewhere")
STATES = ("queued", "running", "completed", "failed")


class Churn:
    """Each step does something to one job: mostly what is allowed."""

    def __init__(self, broker: Broker, seed: int, jobs: int = 30) -> None:
        self._broker = broker
        self._chance = random.Random(seed)
        self._jobs = jobs

    def step(self) -> None:
        """One call to Redis or two."""
        chance = self._chance
        origin = chance.choice(ORIGINS)
        id = str(chance.randrange(self._jobs))
        key = Key(origin, chance.choice(("ollama", "a b/%")), "", id)
        kind = chance.random()
        with suppress(Refused):
            if kind < 0.55:
                state = chance.choice(STATES)
                self._broker.report(
                    reported(
                        id=id,
                        state=state,
                        origin=origin,
                        engine=key.engine,
                        node=chance.choice(("node-a", "node-b")),
                        created_at=self._broker.store.clock.now(),
                    )
                )
            elif kind < 0.7:
                self._broker.remove(key, force=True)
            elif kind < 0.75:
                self._broker.remove_pair(origin, id, force=True)
            elif kind < 0.9:
                self._broker.submit(key.engine, 1, origin=origin, id=id, run=str(self._jobs))
            else:
                self._broker.cancel(key._replace(run=str(self._jobs)), force=True)
