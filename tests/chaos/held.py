"""A store that stops before a write: what was read for it grows old, while others go on."""

from __future__ import annotations


class Held:
    """Stands where a store's scripts stood. Before the next call of `script` it does what `pause` is set to, once.

    `kind` names an event: then only a call of the merge that brings such a one is held.
    """

    def __init__(self, store, script="merge", kind=None):
        self.scripts, store.scripts = store.scripts, self
        self.script, self.kind = script, kind
        self.pause = None
        self.told = []  #: what the held calls were answered

    def run(self, name, keys, args):
        if self.pause is None or name != self.script or (self.kind and self.kind not in args):
            return self.scripts.run(name, keys, args)
        pause, self.pause = self.pause, None
        pause()
        told = self.scripts.run(name, keys, args)
        self.told.append(told)
        return told

    def rules(self):
        """The rules by which the held calls of the merge were answered, event by event."""
        return [told.decode() for call in self.told for told in call[1:-1:3]]
