"""How long a command takes from Enter to the prompt, in starts of a bare interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from books import fill
from tools import Row, in_turns, ratios, timed

from broker.store.store import Store
from broker.store.view import View


def rows(url: str, *, turns: int) -> list[Row]:
    """Whole processes: `python -c pass`, `broker --help`, `broker show KEY`."""
    store = Store.from_url(url, "start")
    [key] = fill(View(store), "bench", 1)
    store.close()
    environment = os.environ | {"REDIS_URL": url, "BROKER_NAMESPACE": "start"}

    def run(*words: str) -> Callable[[int], float]:
        def once() -> None:
            subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, check=True)

        return lambda _: timed(once) * 1000

    script = Path(sys.executable).with_name("broker")
    broker = [str(script)] if script.exists() else [sys.executable, "-P", "-m", "broker.cli"]
    slices = {
        "bare": run(sys.executable, "-c", "pass"),
        "help": run(*broker, "--help"),
        "show": run(*broker, "show", str(key)),
    }
    found = in_turns(slices, turns)
    return [
        Row("help_to_bare", ratios(found["help"], found["bare"]), "x", "broker --help to python -c pass", "<= 8"),
        Row("show_to_bare", ratios(found["show"], found["bare"]), "x", "broker show KEY to python -c pass", "<= 8"),
        Row("bare_ms", found["bare"], "ms", "python -c pass"),
        Row("help_ms", found["help"], "ms", "broker --help"),
        Row("show_ms", found["show"], "ms", "broker show KEY"),
    ]  # fmt: skip
