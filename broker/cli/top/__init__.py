"""`broker top`: the overview, the nodes and the job list on a terminal, live.

Here is the command alone. What draws is imported once it is called, so that other commands start as quickly as ever.
"""

from __future__ import annotations

import logging
import os
import sys

from broker.cli.exits import Exit
from broker.cli.options import EngineOption, NodeOption, OriginOption, StateOption, check_state
from broker.cli.session import broker
from broker.errors import Invalid
from broker.rules.key import check_name

__all__ = ["top"]


def top(
    state: StateOption = None,
    node: NodeOption = None,
    engine: EngineOption = None,
    origin: OriginOption = None,
) -> None:
    """Look at the fleet: overview, nodes, jobs, each job's why and output; cancel, retry and remove.

    Keys are shown on the last line. The options say which jobs the list begins with; s and / change it.
    """
    check_state(state)
    if node is not None:
        check_name("node", node)
    if origin is not None:
        check_name("origin", origin)
    streams = (sys.stdin, sys.stdout, sys.__stderr__)
    if not all(stream and stream.isatty() for stream in streams) or _is_dumb():
        raise Invalid("broker top needs a terminal; broker jobs --watch -o jsonl streams the list")
    with broker() as here:
        from broker.cli.top.app import Top
        from broker.cli.top.feed import Feed
        from broker.cli.top.listing import View

        # Nothing but the picture may write to the terminal while it stands.
        logging.getLogger().addHandler(logging.NullHandler())
        view = View(state=state, node=node, engine=engine, origin=origin)
        shown = Top(Feed(here), view)
        shown.run()
    if shown.return_code:
        raise Exit(shown.return_code)


def _is_dumb() -> bool:
    return os.environ.get("TERM", "dumb") == "dumb"
