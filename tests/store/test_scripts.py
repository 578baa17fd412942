"""The loader: a script's header is its contract, and the twins read events by the same table."""

from __future__ import annotations

import re

import fakeredis
import pytest
import redis

from broker.errors import Damaged, Unavailable
from broker.rules import event as events
from broker.rules.record import PROJECTION
from broker.store import scripts
from broker.store.connection import redis_errors
from broker.store.keys import Keys
from broker.store.scripts import Scripts, source


def lua_list(text, name):
    found = re.search(rf"\b{name} = \{{([^}}]*)\}}", text)
    return tuple(re.findall(r"'(\w+)'", found[1]))


def test_the_header_names_keys_and_arguments():
    beat = source("beat")
    assert beat.keys == ("job",)
    assert beat.args == ("now", "attempt", "holder")


@pytest.mark.parametrize("keys, args", [(0, 3), (2, 3), (1, 2), (1, 4)])
def test_a_call_of_another_arity_is_a_programmers_error(keys, args):
    with pytest.raises(TypeError, match=r"beat\.lua takes"):
        Scripts(fakeredis.FakeRedis(), Keys()).run("beat", ["k"] * keys, ["1"] * args)


def test_an_open_end_takes_any_number():
    merge = source("merge")
    merge.check(10, 7)
    merge.check(999, 999)
    with pytest.raises(TypeError):
        merge.check(9, 7)
    with pytest.raises(TypeError):
        merge.check(10, 6)


def test_includes_are_taken_in():
    for name in scripts.names():
        assert "@include" not in source(name).text


def test_every_include_is_included():
    included = {
        name for script in scripts.FOLDER.glob("*.lua")
        for name in re.findall(r'@include "(\w+)"', script.read_text())
    }  # fmt: skip
    assert included == {path.stem for path in (scripts.FOLDER / "include").glob("*.lua")}


def test_a_forgotten_script_is_loaded_again(store):
    key = store.keys.of("desk").of_job("ollama//7").job
    for _ in range(2):
        assert store.scripts.run("beat", [key], [1, 1, "h"]) == [b"0", b"", b"0"]
        store.client.script_flush()


def test_what_redis_answers_is_told_in_our_words(store):
    key = store.keys.of("desk").of_job("ollama//7").job
    store.client.set(key, "no hash")
    with pytest.raises(Damaged) as damaged:
        store.scripts.run("beat", [key], [1, 1, "h"])
    said = "(WRONGTYPE); the auditor sets such a key aside within seconds"
    assert str(damaged.value) == f"{key} is a string, not a hash {said}"


def test_a_command_that_met_a_key_of_a_wrong_type_is_named_with_it(store):
    """Whether it came alone or among others: Redis's own answer names no key."""
    log = store.keys.of("desk").log
    store.client.set(log, "no stream")
    named = rf"XLEN {re.escape(log)} met a key of a wrong type"
    with pytest.raises(Damaged, match=named), redis_errors():
        store.client.xlen(log)
    with redis_errors(), store.client.pipeline(transaction=False) as pipe:
        pipe.ping()
        pipe.xlen(log)
        with pytest.raises(Damaged, match=named), redis_errors():
            pipe.execute()


def test_a_script_that_fails_otherwise_is_named(store):
    meta = store.keys.of("desk").meta
    store.client.hset(meta, "term:x", "1")
    with pytest.raises(Damaged, match=r"^raise\.lua: Redis answered"):
        store.scripts.run("raise", [meta], ["term:x", "no number"])


@pytest.mark.parametrize("kind", events.EVENTS)
def test_both_twins_read_an_event_by_the_same_table(kind):
    assert lua_list(source("merge").text, kind) == events.ARGUMENTS[kind]


def test_both_twins_know_the_same_kinds_and_roles():
    text = source("merge").text
    roles = {kind: cls.role for kind, cls in events.EVENTS.items() if hasattr(cls, "role")}
    block = re.search(r"local ROLE = \{(.*?)\}", text, re.DOTALL)[1]
    assert dict(re.findall(r"(\w+) = '(\w+)'", block)) == roles
    block = re.search(r"local ARGUMENTS = \{(.*?)\n\}", text, re.DOTALL)[1]
    assert set(re.findall(r"^  (\w+) = ", block, re.MULTILINE)) == set(events.EVENTS)


def test_both_twins_project_the_same_fields():
    text = source("merge").text
    assert lua_list(text, "PROJECTION") == PROJECTION


@pytest.mark.parametrize("name", scripts.names())
@pytest.mark.parametrize("word", ["cjson", "cmsgpack", "struct", "bit", "sha1hex", "TIME"])
def test_no_script_uses_what_fakeredis_lacks_or_what_is_no_argument(name, word):
    code = re.sub(r"--.*", "", source(name).text)
    assert not re.search(rf"\b{word}\b", code)


def test_a_full_stop_of_redis_py_is_not_ours():
    with pytest.raises(Unavailable) as raised, redis_errors():
        raise redis.ConnectionError("Error 111 connecting to h:6379. Connection refused.")
    assert (
        str(raised.value)
        == "Redis does not answer: Error 111 connecting to h:6379. Connection refused"
    )
