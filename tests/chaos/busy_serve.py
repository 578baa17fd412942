"""`broker serve` whose auditor goes round all the time: `python -m tests.chaos.busy_serve` stands for `broker`.

A round each minute is right for a fleet that is almost always healthy, and too long to wait for after each damage.
"""

from __future__ import annotations

import sys

from broker.cli import main
from broker.roles.auditor import Auditor

#: In place of a minute, and of five seconds.
PACES = {"round_seconds": 2.0, "keys_seconds": 1.0}

if __name__ == "__main__":
    Auditor.__init__.__kwdefaults__.update(PACES)
    sys.exit(main())
