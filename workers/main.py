"""The process of one slot, as the supervisor starts it."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Sequence

import redis

from broker import Broker, Misconfigured, Unavailable, set_up_logs, settings
from workers import registry
from workers.inline import InlineWorker
from workers.post import Post, connect
from workers.worker import Worker

log = logging.getLogger("workers")

#: The operator must mend something: starting again would not help (EX_CONFIG).
EXIT_MISCONFIGURED = 78
#: Redis does not answer: start again later (EX_UNAVAILABLE).
EXIT_UNAVAILABLE = 69


def main(argv: Sequence[str] | None = None) -> int:
    """Serve one slot until told to stop; the exit code says whether it is of use to start again."""
    options = _options(argv)
    try:
        config = settings(namespace=options.namespace, node=options.node)
        set_up_logs(config.log_level, config.log_format)
        registry.load(options.imports)
        spec = registry.find(options.engine)
        broker = Broker.from_url(namespace=config.namespace, node=config.node)
        post = Post(broker, config.node, spec, options.slot)
        kind = InlineWorker if options.inline else Worker
        worker = kind(post.queue, connection=connect(broker), post=post)
        worker.work(logging_level="WARNING")
    except Misconfigured as wrong:
        log.error("%s", wrong)  # noqa: TRY400 - the message is for the operator
        return EXIT_MISCONFIGURED
    except Unavailable as away:
        log.error("%s", away)  # noqa: TRY400
        return EXIT_UNAVAILABLE
    except (redis.ConnectionError, redis.TimeoutError) as away:  # in a call of RQ's, at the start
        log.error("Redis does not answer: %s", str(away).removesuffix("."))  # noqa: TRY400
        return EXIT_UNAVAILABLE
    return 0


def arguments(
    *, namespace: str, node: str, engine: str, slot: int, imports: Sequence[str], inline: bool
) -> list[str]:
    """The command line of a slot. The url is not on it: it may hold a password, and everybody can see this."""
    # With `=`: a name may begin with `-`.
    made = [f"--namespace={namespace}", f"--node={node}", f"--engine={engine}", f"--slot={slot}"]
    made += ["--parent", str(os.getpid()), *(f"--import={module}" for module in imports)]
    return made + ["--inline"] * inline


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="workers")
    for name in ("namespace", "node", "engine"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--slot", type=int, default=0)
    parser.add_argument("--parent", type=int, default=0)
    parser.add_argument("--import", dest="imports", action="append", default=[])
    parser.add_argument("--inline", action="store_true")
    return parser.parse_args(argv)
