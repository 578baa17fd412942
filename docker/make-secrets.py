#!/usr/bin/env python3
"""Makes the stack's secrets, before anything else starts: make-secrets FOLDER.

FOLDER is a volume that the services share: `redis-password`, and what is derived from it, `redis.conf`
for the server and `redis-url` for the clients (REDIS_URL_FILE). The password is the one in REDIS_PASSWORD,
else the one made by an earlier start, else a new one.
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
    kept = folder / "redis-password"
    password = os.environ.get("REDIS_PASSWORD") or (kept.read_text() if kept.exists() else "")
    password = password or secrets.token_hex(24)
    write(kept, password)
    write(folder / "redis.conf", REDIS_CONF.format(password=quoted(password)))
    write(folder / "redis-url", f"redis://:{quote(password, safe='')}@redis:6379/0")


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
