"""`broker ...` that dies in the middle: kills itself at a call of a function that it chose before, not at a moment.

Arguments: a folder, a file, the number of the call, and the words of the command. Calls are counted from where it first
opens something in the folder. With the number 0 it lives, and writes into the file how many there were.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from broker.cli import main


class Mortal:
    def __init__(self, folder: str, last: int) -> None:
        self.calls = 0
        self._folder = folder
        self._last = last
        sys.addaudithook(self._audited)

    def _audited(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and str(args[0]).startswith(self._folder) and not self.calls:
            sys.setprofile(self._called)

    def _called(self, _frame: object, event: str, _arg: object) -> None:
        if event in {"call", "c_call"}:
            self.calls += 1
            if self.calls == self._last:
                os.kill(os.getpid(), signal.SIGKILL)


def run(folder: str, file: str, last: str, *words: str) -> int:
    mortal = Mortal(folder, int(last))
    code = main(list(words))
    sys.setprofile(None)
    Path(file).write_text(str(mortal.calls))
    return code


if __name__ == "__main__":
    raise SystemExit(run(*sys.argv[1:]))
