"""The demo's engine in Python: `broker worker --import demo_engines` offers it."""

from __future__ import annotations

import os
from typing import Any

from workers import Context, engine

CHUNK_BYTES = 1 << 20


@engine("statistics")
def statistics(ctx: Context, payload: dict[str, Any]) -> dict[str, int]:
    """Count lines (ends of line), words (what white space separates) and bytes, a chunk at a time."""
    lines = words = size = 0
    in_word = False
    with open(payload["path"], "rb") as file:  # noqa: PTH123 - a name as it came, whatever it holds
        total = os.fstat(file.fileno()).st_size
        while (chunk := file.read(CHUNK_BYTES)) and not ctx.cancelled:
            lines += chunk.count(b"\n")
            words += len(chunk.split()) - (in_word and not chunk[:1].isspace())
            size += len(chunk)
            in_word = not chunk[-1:].isspace()
            if size < total:
                ctx.progress(size / total)
    return {"lines": lines, "words": words, "bytes": size}
