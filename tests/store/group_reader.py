"""A group's one reader, by hand: it writes what members write, command by command."""

from __future__ import annotations

from broker.store.groups import Groups
from broker.store.log import BEGIN, Log


class Reader:
    """Reads one origin for one group; `begins` where the log begins."""

    def __init__(self, desk, name="mail", *, begins=True):
        self.desk, self.name = desk, name
        self.client = desk.store.client
        self.key = desk.keys.sub(name)
        self.look()
        if begins:
            self.begin(BEGIN)

    def look(self, at=None):
        at = self.desk.store.clock.now() if at is None else at
        self.client.hset(self.desk.store.keys.groups, self.name, at)

    def begin(self, rev):
        position = Log(self.desk.store, self.desk.origin).position()
        self.client.xgroup_create(self.desk.keys.log, self.name, rev, mkstream=True)
        self.say(acked=rev, sent=rev, epoch=position.epoch)

    def say(self, **fields):
        self.client.hset(self.key, mapping=fields)

    def fetch(self, count):
        """Take up to `count` new entries; their revs."""
        found = self.client.xreadgroup(self.name, "owner", {self.desk.keys.log: ">"}, count)
        revs = [raw.decode() for raw, _ in found[0][1]]
        self.say(sent=revs[-1])
        return revs

    def ack(self, revs):
        self.client.xack(self.desk.keys.log, self.name, *revs)
        self.say(acked=revs[-1])

    def read(self, count):
        self.ack(self.fetch(count))

    def lag(self):
        [seen] = self.seen()
        return seen.lag

    def seen(self):
        found = Groups(self.desk.store).seen(self.desk.store.clock.now())
        return [seen for seen in found if seen.group == self.name]

    def told(self):
        """What Redis itself says of the group."""
        [found] = self.client.xinfo_groups(self.desk.keys.log)
        return found
