#!/usr/bin/env python3
"""Makes the stack's secrets, before anything else starts: make-secrets FOLDER.

FOLDER is a volume that the services share: `redis-password`, and what is derived from it, `redis.conf`
for the server and `redis-url` for the clients (REDIS_URL_FILE); and `http-token`, which opens HTTP
(BROKER_TOKEN_FILE). Each is the one in REDIS_PASSWORD or BROKER_TOKEN, else the one made by an earlier start,
else a new one.
"""

import os
import secrets
import sys
from pathlib import Path
from urllib.parse import quote

REDIS_CONF = """\
requirepass {password}
dir /data
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
"""


def main(folder: Path) -> None:
    os.umask(0o077)
    password = secret(folder / "redis-password", os.environ.get("REDIS_PASSWORD"))
    secret(folder / "http-token", os.environ.get("BROKER_TOKEN"))
    write(folder / "redis.conf", REDIS_CONF.format(password=quoted(password)))
    write(folder / "redis-url", f"redis://:{quote(password, safe='')}@redis:6379/0")


def secret(file: Path, given: str | None) -> str:
    """The secret that the file holds from now on."""
    found = given or (file.read_text() if file.exists() else "") or secrets.token_hex(24)
    write(file, found)
    return found


def quoted(text: str) -> str:
    """As redis.conf reads it: every byte but ASCII letters and digits by its hex code."""
    plain = (
        chr(b) if chr(b).isascii() and chr(b).isalnum() else f"\\x{b:02x}" for b in text.encode()
    )
    return f'"{"".join(plain)}"'


def write(path: Path, text: str) -> None:
    """In one step: a service that starts meanwhile reads the old or the new, never half."""
    draft = path.with_suffix(".new")
    draft.write_text(text)
    draft.replace(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
