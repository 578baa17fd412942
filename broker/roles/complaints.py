"""What only the operator can mend, told once a minute for as long as it lasts."""

from __future__ import annotations

import logging
import time

#: A damage that lasts is told again after so many seconds.
COMPLAIN_SECONDS = 60.0

log = logging.getLogger(__name__)


class Complaints:
    """What one role has said lately."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def tell(self, what: str) -> None:
        """Say it, unless it was said within the last minute."""
        here = time.monotonic()
        self._told = {text: at for text, at in self._told.items() if here - at < COMPLAIN_SECONDS}
        if what not in self._told:
            self._told[what] = here
            log.error("%s", what)
