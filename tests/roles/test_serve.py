"""How the roles of a process end."""

from __future__ import annotations

import threading

from broker.roles import serve
from broker.roles.serve import Role, run_roles

ROLES = 5


def test_roles_give_up_their_leads_together(store, monkeypatch):
    """A Redis that hangs would else be waited for by each in its turn: longer than a container is given to end."""
    together, given_up = threading.Barrier(ROLES, timeout=60), []

    def close():
        together.wait()
        given_up.append(True)

    made = [Role(f"role {number}", lambda: 0, close) for number in range(ROLES)]
    monkeypatch.setattr(serve, "roles", lambda *given: made)
    stop = threading.Event()
    stop.set()
    run_roles(store, stop)
    assert len(given_up) == ROLES
