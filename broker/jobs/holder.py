"""Holder: the execution that runs the current attempt of a job. What a worker says, and nothing else.

Its word counts only while its attempt does: a job that was given up here and started elsewhere refuses it by name.
"""

from __future__ import annotations

import random
import secrets
import time
from typing import Any

from broker.errors import Damaged, NotFound, Unavailable
from broker.jobs.catalog import Catalog
from broker.jobs.outcome import Outcome
from broker.jobs.submission import encode_json, new_event_id
from broker.rules.backoff import backoff_ms
from broker.rules.event import Event, Finish, Reassert, Start
from broker.rules.key import Key
from broker.rules.record import Record, clip
from broker.rules.state import COMPLETED, FAILED
from broker.store import output
from broker.store.beat import Beat, beat
from broker.waiting.patience import patiently

#: How long a finished attempt tries to tell it while Redis is away.
PATIENCE_SECONDS = 60.0


class Holder:
    """One execution of one attempt. Safe to carry over a fork before its first call."""

    def __init__(
        self,
        broker: Catalog,
        key: Key,
        *,
        created_at: int,
        attempt: int,
        node: str,
        worker: str,
        nonce: str = "",
    ) -> None:
        self.key = key
        self.created_at = created_at
        self.attempt = attempt
        self.node = node
        self.worker = clip(worker)
        self.nonce = nonce or secrets.token_hex(8)
        self._store = broker.store
        self._view = broker.view
        self._result_ttl_ms = broker.config.result_ttl_ms

    def start(self) -> Outcome:
        """Claim the attempt. Refused: somebody else holds it, or it is no longer wanted: do nothing, quietly."""
        return self._say(
            Start(
                key=self.key,
                created_at=self.created_at,
                attempt=self.attempt,
                node=self.node,
                holder=self.nonce,
                worker=self.worker,
                event_id=new_event_id(),
                by=self.worker,
            )
        )

    def beat(self) -> Beat:
        """Say that it still runs; learn what the user wants and whether the attempt still counts."""
        return beat(self._store, self.key, self.attempt, self.nonce)

    def reassert(self) -> Outcome:
        """Contradict a guess that stands against this attempt."""
        return self._say(
            Reassert(
                key=self.key,
                created_at=self.created_at,
                attempt=self.attempt,
                holder=self.nonce,
                event_id=new_event_id(),
                by=self.worker,
            )
        )

    def finish(
        self,
        state: str,
        *,
        result: Any = None,
        error: str = "",
        reason: str = "",
        retryable: bool = False,
        died: bool = False,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> Outcome:
        """Say how the attempt ended: completed, failed or cancelled.

        The same word is sent again while Redis is away or keys are damaged, for `patience_seconds`; its event_id makes
        that safe. Raises Invalid where the result is no JSON of at most 1 MiB; Unavailable, Damaged where patience ran
        out.
        """
        full = (
            encode_json("result", result)
            if state == COMPLETED
            else encode_json("error", {"error": error})
        )
        retryable = retryable and state == FAILED
        deadline = time.monotonic() + patience_seconds
        event = Finish(
            key=self.key,
            created_at=self.created_at,
            attempt=self.attempt,
            holder=self.nonce,
            state=state,
            error=clip(error.partition("\n")[0]),
            reason=clip(reason),
            result=full,
            retryable=retryable,
            died=died,
            due=patiently(self._due, patience_seconds) if retryable else 0,
            event_id=new_event_id(),
            by=self.worker,
        )
        left = deadline - time.monotonic()
        return patiently(lambda: self._say(event), left, through=(Unavailable, Damaged))

    def record(self) -> Record | None:
        """The job's record now, None where it is gone."""
        return self._view.get(self.key)

    def payload(self) -> Any:
        """What was submitted, which may be null; raises NotFound where it is gone."""
        payload = self._view.spec(self.key)
        if payload is None and not self._view.has_spec(self.key):
            raise NotFound(f"the payload of {self.key} is gone")
        return payload

    def progress(self, fraction: float) -> None:
        """Tell how far it is, from 0 to 1, on the output lane."""
        self._write("progress", f"{min(1.0, max(0.0, fraction)):.4g}")

    def write(self, chunk: str) -> None:
        """Put a piece of output on the lane."""
        self._write("chunk", chunk)

    def _write(self, what: str, text: str) -> None:
        output.write(self._store, self.key, self.attempt, what, text, self._result_ttl_ms)

    def _due(self) -> int:
        record = self.record()
        return self._store.clock.now() + backoff_ms(
            max(1, record.tries if record else 1), random.random()
        )

    def _say(self, event: Event) -> Outcome:
        """Raises Damaged also where it is only the job's own key that is."""
        [answer] = self._view.apply([event])
        if answer.outcome == "error":
            raise Damaged(f"{self.key}: {answer.rule}")
        return Outcome.of(self.key, answer)
