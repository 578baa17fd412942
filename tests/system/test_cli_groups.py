"""`broker groups`: who subscribes, how far behind, what is parked, and what becomes of it; what the checkup finds."""

from __future__ import annotations

import pytest

from broker import Broker
from broker.cli.table import cells
from broker.store.group import Group
from tests.clock import StillClock
from tests.store.readers import until
from tests.system.command import PATIENCE_MS, patient, reported
from tests.system.test_cli_terminal import CONTROL, HOSTILE, on_terminal

#: The fields of a group's JSON, and of a parked entry's, in order.
GROUP_FIELDS = [
    "group", "origin", "owner", "live", "term", "looked_at", "silent_ms", "acked", "gone", "lag_entries", "lag_ms",
    "pending", "tries", "parked", "replaying", "evicted", "gaps",
]  # fmt: skip
PARKED_FIELDS = ["group", "origin", "id", "rev", "at", "tries", "reason", "entry", "fields"]


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    patient(monkeypatch)


class Member:
    """A member's hands: it owns one origin, and does what a test says."""

    def __init__(
        self, broker: Broker, name: str = "mail", origin: str = "desk", parked_max: int = 1_000
    ) -> None:
        self.broker, self.name, self.origin = broker, name, origin
        self.hands = Group(broker.store, name, "m1", lease_ms=PATIENCE_MS, parked_max=parked_max)
        self.hands.look([origin])
        self.term = self.hands.claim(origin).term

    def read(self, count: int) -> None:
        for rev in self.fetch(count):
            self.hands.ack(self.origin, self.term, rev)

    def park(self, count: int, reason: str = "boom") -> None:
        for rev in self.fetch(count):
            self.hands.park(self.origin, self.term, rev, reason)

    def fetch(self, count: int) -> list[str]:
        fetched = self.hands.fetch(self.origin, self.term, count).entries
        return [rev.decode() for rev, _ in fetched]

    def die(self) -> None:
        """It looked last a day ago, and its lease lapsed."""
        now = self.broker.store.clock.now()
        keys = self.broker.store.keys
        self.broker.store.client.hset(keys.groups, self.name, now - 86_400_000)
        self.broker.store.client.hset(keys.of(self.origin).sub(self.name), "until", now - 1)

    def leave(self) -> None:
        self.hands.release(self.origin, self.term)
        self.die()


@pytest.fixture
def member(broker):
    """Of four entries it has parked two, read none of the others."""
    report(broker, 4)
    made = Member(broker)
    made.park(2)
    return made


def report(broker, count, origin="desk"):
    list(broker.report_many(reported(str(n), origin=origin) for n in range(count)))


def rows(ran):
    return [line.split() for line in ran.out.splitlines()]


def with_each(command, **fields):
    """The groups that are as told; none before a member has looked."""
    seen = command.ok("groups", "-o", "json").json
    return [one for one in seen if one.items() >= fields.items()]


class TestListing:
    def test_tells_who_reads_and_how_far_behind(self, command, broker, member):
        [seen] = command.ok("groups", "-o", "json").json
        assert list(seen) == GROUP_FIELDS
        assert seen | dict.fromkeys(("lag_ms", "silent_ms", "acked")) == dict.fromkeys(GROUP_FIELDS) | {
            "group": "mail", "origin": "desk", "owner": "m1", "live": True, "term": member.term,
            "looked_at": seen["looked_at"], "lag_entries": 2, "pending": 0, "tries": 0, "parked": 2, "replaying": 0,
            "evicted": 0, "gaps": 0,
        }  # fmt: skip
        assert seen["lag_ms"] >= 0
        assert command.ok("groups", "-o", "jsonl").out.count("\n") == 1
        head, row = rows(command.ok("groups"))
        assert head == [
            "GROUP",
            "ORIGIN",
            "OWNER",
            "LAST",
            "LOOK",
            "LAG",
            "BEHIND",
            "PARKED",
            "EVICTED",
            "GAPS",
        ]
        assert row[:3] == ["mail", "desk", "m1"]
        assert row[4:] == ["ago", "2", row[6], "2", "0", "0"]

    def test_one_that_has_read_all_is_0_behind(self, command, member):
        member.read(4)
        [seen] = command.ok("groups", "-o", "json").json
        assert (seen["lag_entries"], seen["lag_ms"]) == (0, 0)
        assert rows(command.ok("groups"))[1][5:7] == ["0", "0.0s"]

    def test_the_age_is_exact(self, command, broker, member, monkeypatch):
        clock = StillClock(broker.store.clock)
        first = int(broker.log("desk").read()[2].rev.split("-")[0])
        clock.ahead_ms = first + 3_725_000 - clock.begun_at
        monkeypatch.setattr("broker.store.store.Clock", lambda client: clock)
        [seen] = command.ok("groups", "-o", "json").json
        assert seen["lag_ms"] == 3_725_000
        assert rows(command.ok("groups"))[1][6] == "62m"

    def test_what_is_not_known_is_shown_so_and_never_as_0(self, command, broker, member):
        broker.store.client.xgroup_destroy(broker.store.keys.of("desk").log, "mail")
        [seen] = command.ok("groups", "-o", "json").json
        assert (seen["lag_entries"], seen["pending"], seen["gone"]) == (None, None, None)
        row = rows(command.ok("groups"))[1]
        assert row[5] == "?"
        assert row[6] != "?"

    def test_a_log_that_is_gone_leaves_all_of_it_unknown(self, command, broker, member):
        broker.store.client.delete(broker.store.keys.of("desk").log)
        [seen] = command.ok("groups", "-o", "json").json
        assert (seen["lag_entries"], seen["lag_ms"]) == (None, None)
        assert seen["gone"] == "it is another log now"
        assert rows(command.ok("groups"))[1][5:7] == ["?", "?"]

    def test_one_without_an_owner_tells_when_a_member_last_looked(self, command, member):
        member.leave()
        [seen] = command.ok("groups", "-o", "json").json
        assert (seen["owner"], seen["live"]) == (None, False)
        assert rows(command.ok("groups"))[1][2:5] == ["-", "24h", "ago"]

    def test_an_owner_whose_lease_lapsed_is_doubtful(self, command, member):
        member.die()
        [seen] = command.ok("groups", "-o", "json").json
        assert (seen["owner"], seen["live"]) == ("m1", False)
        assert rows(command.ok("groups"))[1][2] == "m1?"

    def test_a_look_that_cannot_be_read_is_unknown(self, command, broker, member):
        broker.store.client.hset(broker.store.keys.groups, "mail", "yesterday")
        [seen] = command.ok("groups", "-o", "json").json
        assert (seen["looked_at"], seen["silent_ms"]) == (None, None)
        assert rows(command.ok("groups"))[1][2:5] == ["m1", "?", "2"]

    def test_one_that_has_not_begun_is_listed(self, command, broker):
        Group(broker.store, "mail", "m1", lease_ms=5_000, parked_max=1_000).look([])
        [seen] = command.ok("groups", "-o", "json").json
        assert (seen["group"], seen["origin"], seen["lag_entries"]) == ("mail", None, None)
        row = rows(command.ok("groups"))[1]
        assert row[:3] + row[5:] == ["mail", "-", "-", "-", "-", "0", "0", "0"]

    def test_no_groups(self, command):
        for words in ([], ["-o", "jsonl"]):
            assert command.ok("groups", *words).out == ""
        assert "no groups" in command.ok("groups").err
        ran = command.ok("groups", "-o", "json")
        assert (ran.json, ran.err) == ([], "")

    def test_shows_a_member_of_this_process_until_it_ends(self, command, broker):
        report(broker, 3)
        told = []
        with broker.subscribe("mail", told.append):
            [seen] = until(lambda: with_each(command, lag_entries=0))
            assert seen["live"]
            assert command("groups", "remove", "mail").code == 4
        [seen] = command.ok("groups", "-o", "json").json
        assert (seen["owner"], seen["lag_entries"], len(told)) == (None, 0, 3)


class TestParked:
    def test_lists_the_entries_with_their_reasons(self, command, member):
        found = command.ok("groups", "parked", "mail", "-o", "json").json
        assert [list(one) for one in found] == [PARKED_FIELDS] * 2
        assert [one["entry"]["key"] for one in found] == ["desk/ollama//0", "desk/ollama//1"]
        assert [(one["reason"], one["origin"], one["fields"]) for one in found] == [
            ("boom", "desk", None)
        ] * 2
        assert command.ok("groups", "parked", "mail", "-o", "jsonl").lines == found
        head, row, _ = rows(command.ok("groups", "parked", "mail"))
        assert head == ["ID", "ORIGIN", "AT", "KEY", "TRIES", "REASON"]
        assert (row[0], row[-3:]) == (found[0]["id"], ["desk/ollama//0", "0", "boom"])

    def test_an_entry_that_is_none_is_shown_as_it_is(self, command, broker):
        broker.report(reported("7"))
        broker.store.client.xadd(broker.store.keys.of("desk").log, {"x": b"\xff\x1b[2J"})
        Member(broker).park(2, "undecodable")
        _, one = command.ok("groups", "parked", "mail", "-o", "json").json
        assert (one["entry"], one["fields"]) == (None, {"x": "\ufffd\x1b[2J"})
        assert rows(command.ok("groups", "parked", "mail"))[2][-3:] == ["?", "0", "undecodable"]

    def test_nothing_parked(self, command, broker):
        Member(broker)
        ran = command.ok("groups", "parked", "mail")
        assert (ran.out, ran.err) == ("", "group mail has nothing parked\n")
        assert command.ok("groups", "parked", "mail", "-o", "json").json == []

    @pytest.mark.parametrize("format", ["table", "json", "jsonl"])
    def test_a_reason_steers_no_terminal(self, command, broker, format):
        broker.report(reported("7"))
        Member(broker).park(1, HOSTILE)
        broker.store.client.hset(broker.store.keys.of("desk").sub("mail"), "owner", HOSTILE)
        seen = "".join(
            command.ok("groups", *words, "-o", format).out
            for words in ([], ["parked", "mail"], ["replay", "mail", "--all"])
        )
        assert "[bold red]x[/]" in seen
        assert not CONTROL.search(seen)

    @pytest.mark.parametrize("columns", [40, 80, 200])
    def test_a_list_never_wraps(self, command, broker, member, columns):
        member.park(1, "it went wrong " * 5)
        for words, kept in ((["groups"], "LAG"), (["groups", "parked", "mail"], "REASON")):
            seen = on_terminal(command, *words, columns=columns, env={"NO_COLOR": "1"})
            assert all(cells(line) <= columns for line in seen.splitlines())
            assert kept in seen
            assert ("GAPS" in seen or "KEY" in seen) == (columns > 40)
        assert ("it went wrong " * 5).strip() in command.process("groups", "parked", "mail").out

    def test_colours_say_what_is_wrong(self, command, broker, member):
        seen = on_terminal(command, "groups")
        assert "\x1b[32mm1" in seen
        assert "\x1b[31m2\x1b" in seen
        member.leave()
        broker.store.client.xgroup_destroy(broker.store.keys.of("desk").log, "mail")
        seen = on_terminal(command, "groups")
        assert "\x1b[33m-" in seen
        assert "\x1b[33m?" in seen


class TestReplay:
    def ids(self, command):
        return [one["id"] for one in command.ok("groups", "parked", "mail", "-o", "json").json]

    def test_asks_for_one_or_for_all(self, command, member):
        first, second = self.ids(command)
        found = command.ok("groups", "replay", "mail", second, "-o", "json").json
        assert [one["id"] for one in found] == [second]
        assert member.hands.to_replay("desk", member.term).id == second
        assert command.ok("groups", "-o", "json").json[0]["replaying"] == 1
        assert len(rows(command.ok("groups", "replay", "mail", "--all"))) == 3
        assert command.ok("groups", "-o", "json").json[0]["replaying"] == 2
        member.hands.done("desk", member.term, second)
        assert self.ids(command) == [first]

    def test_an_id_of_several_origins_is_told_apart(self, command, broker, member):
        report(broker, 1, origin="nas")
        Member(broker, origin="nas")
        keys = broker.store.keys
        id, fields = broker.store.client.xrange(keys.of("desk").parked("mail"), count=1)[0]
        broker.store.client.xadd(keys.of("nas").parked("mail"), fields, id)
        ran = command("groups", "replay", "mail", id.decode())
        assert ran.code == 2
        assert f"desk/{id.decode()}, nas/{id.decode()}" in ran.err
        [one] = command.ok("groups", "replay", "mail", f"nas/{id.decode()}", "-o", "json").json
        assert one["origin"] == "nas"
        assert [seen["replaying"] for seen in command.ok("groups", "-o", "json").json] == [0, 1]

    @pytest.mark.parametrize("id", ["1-1", "x", "nas/1-1", "*", ""])
    def test_an_id_that_is_not_parked_is_3(self, command, member, id):
        ran = command("groups", "replay", "mail", id)
        assert (ran.code, ran.out, ran.err.count("\n")) == (3, "", 1)

    def test_a_living_member_handles_it_again(self, command, broker):
        broker.report(reported("7"))
        works = []

        def handler(delivery):
            if not works:
                raise ValueError("not yet")

        with broker.subscribe("mail", handler, tries=1):
            until(lambda: with_each(command, parked=1))
            works.append(True)
            command.ok("groups", "replay", "mail", "--all")
            until(lambda: with_each(command, parked=0))


class TestRemove:
    def test_forgets_it(self, command, broker, member):
        member.leave()
        ran = command.ok("groups", "remove", "mail")
        assert (ran.out, ran.err) == ("", "")
        assert command.ok("groups", "-o", "json").json == []
        assert command("groups", "remove", "mail").code == 3
        keys = broker.store.keys.of("desk")
        assert not broker.store.client.exists(keys.sub("mail"), keys.parked("mail"))

    def test_a_group_with_members_is_held(self, command, broker, member):
        ran = command("groups", "remove", "mail")
        assert (ran.code, ran.out, ran.err.count("\n")) == (4, "", 1)
        assert "--force" in ran.err
        assert broker.groups()[0].parked == 2
        command.ok("groups", "remove", "mail", "--force")
        assert broker.groups() == []

    def test_a_member_that_waits_for_an_origin_holds_it_too(self, command, member):
        member.leave()
        member.hands.look(["desk"])
        assert command("groups", "remove", "mail").code == 4

    def test_an_owner_holds_it_as_long_as_its_lease(self, command, member):
        member.die()
        member.hands.claim("desk")
        assert command("groups", "remove", "mail").code == 4


class TestUsage:
    @pytest.mark.parametrize(
        "verb", [["parked"], ["replay", "--all"], ["remove"], ["remove", "--force"]]
    )
    def test_a_group_that_nobody_knows_is_3(self, command, member, verb):
        verb, *options = verb
        ran = command("groups", verb, "web", *options)
        assert (ran.code, ran.out, ran.err.count("\n")) == (3, "", 1)

    @pytest.mark.parametrize("name", ["Mail", "a b", "*", "m/x", "\x1b[2J", "m\nx", "", "x" * 64])
    @pytest.mark.parametrize("verb", ["parked", "remove"])
    def test_a_name_that_is_none_is_2(self, command, member, verb, name):
        ran = command("groups", verb, name)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert not CONTROL.search(ran.err)

    @pytest.mark.parametrize(
        "words",
        [
            ["list"], ["mail"], ["parked"], ["replay"], ["remove"], ["replay", "mail"],
            ["replay", "mail", "1-1", "--all"], ["remove", "mail", "x", "y"], ["-o", "xml"],
            ["parked", "mail", "1-1"], ["parked", "mail", "--all"], ["parked", "mail", "--force"], ["--all"],
            ["--force"], ["remove", "mail", "--all"], ["remove", "mail", "1-1"], ["replay", "mail", "--all", "--force"],
        ],
    )  # fmt: skip
    def test_what_does_not_go_together_is_2(self, command, member, words):
        ran = command("groups", *words)
        assert (ran.code, ran.out) == (2, "")
        assert command.ok("groups", "-o", "json").json[0]["replaying"] == 0


class TestDoctor:
    def findings(self, command):
        found = command("doctor", "-o", "json").json
        return [(one["level"], one["text"]) for one in found if one["topic"] == "group"]

    def test_a_group_that_keeps_up_is_fine(self, command, broker):
        report(broker, 2)
        Member(broker).read(1)
        assert self.findings(command) == [("ok", "mail keeps up")]

    def test_finds_entries_that_nobody_reads(self, command, broker, monkeypatch):
        report(broker, 2)
        member = Member(broker)
        member.leave()
        clock = StillClock(broker.store.clock)
        first = int(broker.log("desk").read()[0].rev.split("-")[0])
        clock.ahead_ms = first + 2 * PATIENCE_MS - clock.begun_at
        monkeypatch.setattr("broker.store.store.Clock", lambda client: clock)
        assert self.findings(command) == [
            ("ok", "mail keeps up")
        ]  # a member may be about to take over
        clock.ahead_ms += 1_000
        text = "nobody reads desk for mail: entries wait, the oldest for 1201 s"
        assert self.findings(command) == [("warning", text)]
        member.hands.claim("desk")
        broker.store.client.hset(broker.store.keys.of("desk").sub("mail"), "until", clock.now() + 1)
        assert self.findings(command) == [("ok", "mail keeps up")]

    def test_finds_what_is_parked(self, command, member):
        text = "mail has parked 2 entries: broker groups parked mail"
        assert self.findings(command) == [("warning", text)]

    def test_finds_what_was_parked_and_is_lost(self, command, broker):
        report(broker, 4)
        Member(broker, parked_max=1).park(4)
        assert ("warning", "mail lost 3 parked entries to newer ones: they were never handled") in (
            self.findings(command)
        )
        [head, line] = rows(command.ok("groups"))
        assert line[head.index("EVICTED")] == "3"

    def test_finds_a_lag_that_is_not_known(self, command, broker):
        for origin in [f"node-{n}" for n in range(6)]:
            report(broker, 2, origin)
            Member(broker, origin=origin)
            broker.store.client.delete(broker.store.keys.of(origin).log)
        named = "node-0, node-1, node-2, node-3, node-4, ..."
        text = f"how far mail is behind at {named} is unknown (it is another log now)"
        assert self.findings(command) == [("warning", text)]

    def test_finds_what_was_lost_unread(self, command, broker):
        report(broker, 4)
        member = Member(broker)
        member.read(1)
        broker.log("desk").trim(1, 10**9)
        member.hands.skip("desk", member.term)
        assert self.findings(command) == [("warning", "mail lost entries of desk unread (gaps: 1)")]
        assert command.ok("groups", "-o", "json").json[0]["gaps"] == 1

    def test_a_group_that_has_not_begun_lacks_nothing(self, command, broker):
        Group(broker.store, "mail", "m1", lease_ms=5_000, parked_max=1_000).look([])
        assert self.findings(command) == [("ok", "mail keeps up")]
