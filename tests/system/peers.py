"""Nodes that trust each other or not: each with a folder of its own, and the command line as it is called there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.store.trusting import files
from tests.system.command import Command, Ran


class Peer:
    """`broker trust ...` on one node. Commands run in this process; `process` starts a real one."""

    def __init__(self, command: Command, folder: Path, node: str) -> None:
        self.node = node
        self.folder = folder / node
        self.env = {"BROKER_NODE": node, "BROKER_TRUST_DIR": str(self.folder)}
        self.files = folder
        self._command = command

    def __call__(self, *words: object, **env: str) -> Ran:
        with patch.dict(os.environ, self.env | env):
            return self._command("trust", *words)

    def ok(self, *words: object, **env: str) -> Ran:
        ran = self(*words, **env)
        assert ran.code == 0, ran
        return ran

    def start(self, *words: object, **options: Any) -> Any:
        env = self.env | options.pop("env", {})
        return self._command.start(*words, env=env, **options)

    def process(self, *words: object, **options: Any) -> Ran:
        env = self.env | options.pop("env", {})
        return self._command.process("trust", *words, env=env, **options)

    # --- what it hands to others -----------------------------------------------------------------

    def init(self, *words: object) -> Peer:
        self.ok("init", *words)
        return self

    def card(self, node: str = "") -> dict[str, Any]:
        """The card of a node as this one shows it; its own by default."""
        return self.ok("show", node or self.node, "-o", "json").json

    def file(self, value: object) -> Path:
        """A file of this node's visitor: JSON of a value, or text and bytes as they are."""
        path = self.files / f"{self.node}-{len(list(self.files.iterdir()))}.json"
        raw = value if isinstance(value, (bytes, str)) else json.dumps(value)
        path.write_bytes(raw if isinstance(raw, bytes) else raw.encode())
        return path

    def pins(self, *others: Peer) -> None:
        for other in others:
            self.ok("pin", self.file(other.card()))

    # --- what it holds ----------------------------------------------------------------------------

    def known(self) -> list[str]:
        """The nodes that it trusts, but for itself."""
        return [card["node"] for card in self.ok("show", "-o", "json").json[1:]]

    def told(self) -> list[tuple[str, str]]:
        """What it announced, in order."""
        found = self.ok("announcements", "-o", "json").json
        return [(announced["change"], announced["node"]) for announced in found]

    def bytes(self) -> dict[str, bytes]:
        """All that it keeps, byte by byte."""
        return files(self.folder)
