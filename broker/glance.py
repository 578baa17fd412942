"""A glance at one job: `Catalog.show` for the most usual case, without what is slow to import.

It answers only where the answer is sure to be the same (the tests hold both side by side), and None otherwise: then
the catalog answers, and finds the words where something is wrong.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from broker.errors import BrokerError
from broker.rules.key import ID_BYTES_MAX, Key, check_part, decode
from broker.rules.liveness import Budgets, suspect
from broker.rules.record import REPORTED, from_fields, to_json
from broker.store.bare import Bare, NotPlain
from broker.store.keys import Keys
from broker.store.refusal import read_refusal

#: Settings that a glance may heed or need not; any other may change the answer.
_PLAIN_SETTINGS = frozenset(
    {"BROKER_NAMESPACE", "BROKER_NODE", "BROKER_LOG_LEVEL", "BROKER_LOG_FORMAT"}
)
#: More jobs than this that share an id are left to the catalog.
SHARED_MAX = 100
_VERSION_MIN = 7


def glance(text: str) -> dict[str, Any] | None:
    """What `Catalog.show` gives for the job that `text` names; None where only the catalog can tell."""
    url = os.environ.get("REDIS_URL")
    special = {name for name in os.environ if name.startswith("BROKER_")} - _PLAIN_SETTINGS
    if not url or special or "REDIS_URL_FILE" in os.environ or Path("broker.toml").exists():
        return None
    try:
        with Bare(url) as bare:
            return _show(bare, Keys(os.environ.get("BROKER_NAMESPACE", "broker")), text)
    except (NotPlain, BrokerError, ValueError, TypeError):
        return None


def _show(bare: Bare, keys: Keys, text: str) -> dict[str, Any] | None:
    key = _find(bare, keys, text)
    if key is None:
        return None
    names = keys.of_job(key)
    found, spec, refused, info, (seconds, micros) = bare.ask(
        [
            ("HGETALL", names.job),
            ("GET", names.spec),
            ("LRANGE", names.refused, "0", "-1"),
            ("INFO", "server"),
            ("TIME",),
        ]
    )
    fields = [value.decode() for value in found]
    told = dict(zip(fields[::2], fields[1::2], strict=True))
    if not told.get("kind") or not _is_new_enough(info):
        return None
    record = from_fields(told)
    beat = bare.ask([("ZSCORE", keys.workers, record.worker)])[0] if record.worker else None
    now = int(seconds) * 1000 + int(micros) // 1000
    return {
        **to_json(key, record),
        "suspect": suspect(record, int(beat or 0), now, Budgets()),
        "extras" if record.kind == REPORTED else "payload": None
        if spec is None
        else json.loads(spec),
        "refused": [read_refusal(each.decode()).to_json() for each in refused],
    }


def _find(bare: Bare, keys: Keys, text: str) -> Key | None:
    parts = text.split("/")
    if len(parts) == 4:
        return Key.parse(text)
    pair = Key("", "", "", check_part("id", decode(parts[-1]), ID_BYTES_MAX)).pair
    origins = [name.decode() for name in bare.ask([("HKEYS", keys.origins)])[0]]
    questions = [
        (
            "ZRANGEBYLEX",
            keys.of(origin).ids,
            f"[{pair}/",
            f"({pair}0",
            "LIMIT",
            "0",
            str(SHARED_MAX),
        )
        for origin in origins
    ]
    fitting = []
    for origin, members in zip(origins, bare.ask(questions), strict=True):
        if len(members) == SHARED_MAX:
            return None
        shared = [Key.of_member(origin, member.decode()) for member in members]
        fitting += [key for key in shared if key.fits(text)]
    return fitting[0] if len(fitting) == 1 else None


def _is_new_enough(info: bytes) -> bool:
    """Whether INFO tells a version that `check_version` takes: an old server is refused in its words."""
    lines = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    version = lines.get("valkey_version") or lines.get("redis_version", "0")
    return int(version.split(".")[0]) >= _VERSION_MIN
