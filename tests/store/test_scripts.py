"""The loader: a script's header is its contract, and the twins read events by the same table."""

from __future__ import annotations

import re

import fakeredis
import pytest

from broker.errors import Damaged
from broker.rules import event as events
from broker.rules.record import PROJECTION
from broker.store import scripts
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
        Scripts(fakeredis.FakeRedis()).run("beat", ["k"] * keys, ["1"] * args)


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
    with pytest.raises(Damaged, match="WRONGTYPE"):
        store.scripts.run("beat", [key], [1, 1, "h"])


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
