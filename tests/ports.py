"""Ports for servers that tests start, end and start again."""

from __future__ import annotations

import secrets
import socket

#: Systems give ports from 32,768 on (Linux; macOS: 49,152) to whoever connects and asks for none.
BELOW = range(12_000, 32_000)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on.

    Nobody else is given it while its server is away, and who knocks at it then never meets himself: a connection from
    a port to that same port is one that TCP allows.
    """
    while True:
        port = BELOW[
            secrets.randbelow(len(BELOW))
        ]  # whoever seeds `random` would get the same one each time
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
