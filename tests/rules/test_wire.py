"""What a text from outside means, and that nothing from outside is ever more than one clear complaint."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import Invalid, Malformed
from broker.rules.event import Remove, RemovePair, Report
from broker.rules.jsonl import LINE_BYTES_MAX
from broker.rules.key import Key
from broker.rules.wire import parse_event, parse_line, to_json

KEY = Key("desk", "ollama", "r1", "7")
NATIVE = {
    "event": "report", "origin": "desk", "engine": "ollama", "run": "r1", "id": "7",
    "state": "running", "node": "a", "seq": 3, "created_at": 1000, "started_at": 1500,
    "completed_at": None, "error": None, "model": "llama3", "requester": "me", "resync": False,
}  # fmt: skip
INFO = {
    "id": "7", "model": "llama3", "engine": "ollama", "runId": "r1", "state": "running",
    "originatedFrom": "desk", "scheduledOn": "a", "createdAt": 1000, "startedAt": 1500,
    "completedAt": None, "error": None, "requesterId": "me", "seq": 3,
}  # fmt: skip
RUNNING = Report(
    key=KEY, created_at=1000, state="running", node="a", seq=3, started_at=1500,
    model="llama3", requester="me",
)  # fmt: skip


def frame(method="workload:started", params=None, **changed):
    params = {"workloadInfo": INFO | changed} if params is None else params
    return {"jsonrpc": "2.0", "method": method, "params": params}


def complaint(line) -> Invalid:
    """What is said of a line that is no good: always an Invalid of one line that a terminal can bear."""
    with pytest.raises(Invalid) as found:
        parse_line(line)
    text = str(found.value)
    assert text.isprintable(), text
    assert len(text) < 200, text
    return found.value


class TestNative:
    def test_a_report_is_read_field_by_field(self):
        assert parse_event(NATIVE) == RUNNING

    def test_a_line_reads_as_its_object_does(self):
        line = json.dumps(NATIVE)
        assert parse_line(line) == parse_line(line.encode() + b"\r\n") == RUNNING

    def test_what_is_missing_is_empty_or_zero(self):
        least = {name: NATIVE[name] for name in ("event", "origin", "engine", "id", "state")}
        assert parse_event(least | {"created_at": 5}) == Report(
            key=KEY._replace(run=""), created_at=5, state="running"
        )

    @pytest.mark.parametrize(
        "name",
        ["run", "node", "seq", "started_at", "completed_at", "error", "model", "requester", "resync", "event_id"],
    )  # fmt: skip
    def test_null_means_missing(self, name):
        without = {key: value for key, value in NATIVE.items() if key != name}
        assert parse_event(NATIVE | {name: None}) == parse_event(without)

    def test_a_resync_and_an_event_id_are_kept(self):
        said = parse_event(NATIVE | {"resync": True, "event_id": "n1"})
        assert (said.resync, said.event_id) == (True, "n1")

    def test_a_removal_that_names_an_engine_is_exact_and_its_missing_run_is_empty(self):
        said = {"event": "remove", "origin": "desk", "id": "7", "engine": "ollama"}
        assert parse_event(said) == Remove(key=KEY._replace(run=""))
        assert parse_event(said | {"run": "r1", "removed_at": 9}) == Remove(key=KEY, removed_at=9)

    def test_a_removal_that_names_no_engine_is_broad(self):
        said = {"event": "remove", "origin": "desk", "id": "7"}
        assert parse_event(said) == RemovePair(origin="desk", id="7")
        assert parse_event(said | {"engine": None, "removed_at": 9}).removed_at == 9

    def test_a_removal_of_a_run_without_its_engine_is_not_taken_for_a_broad_one(self):
        with pytest.raises(Invalid, match="run without engine"):
            parse_event({"event": "remove", "origin": "desk", "id": "7", "run": "r1"})


class TestFrames:
    def test_a_workload_frame_is_the_same_report(self):
        assert parse_event(frame()) == RUNNING

    @pytest.mark.parametrize("what", ["submitted", "started", "completed", "errored"])
    @pytest.mark.parametrize("state", ["queued", "running", "completed", "failed", "cancelled"])
    def test_the_state_is_the_payloads_whatever_the_method_is_called(self, what, state):
        assert parse_event(frame(f"workload:{what}", state=state)).state == state

    def test_a_job_that_is_not_placed_never_counts_as_placed_on_its_origin(self):
        info = {name: value for name, value in INFO.items() if name != "scheduledOn"}
        assert parse_event(frame(params={"workloadInfo": info})).node == ""
        assert (
            parse_event(frame(scheduledOn="")).node
            == parse_event(frame(scheduledOn=None)).node
            == ""
        )

    def test_resync_stands_beside_the_workload(self):
        assert parse_event(frame(params={"workloadInfo": INFO, "resync": True})).resync
        assert not parse_event(frame(resync=True)).resync

    def test_a_missing_run_is_the_empty_one(self):
        info = {name: value for name, value in INFO.items() if name not in {"runId", "seq"}}
        said = parse_event(frame(params={"workloadInfo": info}))
        assert (said.key.run, said.seq) == ("", 0)

    def test_workloads_remove_takes_every_engine_and_run(self):
        params = {"workloadId": "7", "originatedFrom": "desk"}
        assert parse_event(frame("workloads:remove", params)) == RemovePair(origin="desk", id="7")

    def test_workloads_remove_that_names_more_removes_no_more_than_it_names(self):
        params = {"workloadId": "7", "originatedFrom": "desk", "engine": "ollama", "runId": "r1"}
        assert parse_event(frame("workloads:remove", params)) == Remove(key=KEY)


class TestUnknownFields:
    def test_they_are_kept_byte_for_byte_and_in_order(self):
        line = json.dumps(NATIVE)[:-1] + (
            ', "big": 123456789012345678901234567890, "f" : 1.10, "e": 1E+2,'
            ' "text": "\\u00e9 \\"q\\" é", "nested": { "b": [1,  2], "a": null }, "": true}'
        )
        assert parse_line(line).extras == (
            '{"big":123456789012345678901234567890,"f":1.10,"e":1E+2,'
            '"text":"\\u00e9 \\"q\\" é","nested":{ "b": [1,  2], "a": null },"":true}'
        )

    def test_those_inside_a_frame_are_kept_as_well(self):
        line = '{"params": {"x": {"workloadInfo": 1}, "workloadInfo": %s}, "jsonrpc":"2.0","method":"workload:started"}'
        assert parse_line(line % json.dumps(INFO | {"gpu": [1.0]})).extras == '{"gpu":[1.0]}'

    def test_an_object_gives_them_as_compact_json(self):
        said = parse_event(NATIVE | {"x": {"b": 2**80, "a": [0.1, "é"]}})
        assert said.extras == '{"x":{"b":1208925819614629174706176,"a":[0.1,"é"]}}'

    def test_a_name_that_differs_in_case_is_another_name(self):
        said = parse_line(json.dumps(NATIVE | {"Seq": 9, "STATE": "failed"}))
        assert (said.seq, said.state, said.extras) == (3, "running", '{"Seq":9,"STATE":"failed"}')

    def test_of_a_repeated_name_the_last_value_counts(self):
        twice = ', "x": 1, "y": [2], "seq": 4, "x": [2], "y": 1, "state": "failed"}'
        said = parse_line(json.dumps(NATIVE)[:-1] + twice)
        assert (said.seq, said.state, said.extras) == (4, "failed", '{"x":[2],"y":1}')

    def test_long_texts_are_cut_and_kept_whole_beside_the_record(self):
        error, model, who = "e" * 63 + "éé", "m" * 65, "w" * 100
        said = parse_event(NATIVE | {"error": error, "model": model, "requester": who, "x": 1})
        assert (said.error, said.full) == ("e" * 63, json.dumps(error, ensure_ascii=False))
        assert (said.model, said.requester) == ("m" * 64, "w" * 64)
        assert said.extras == json.dumps(
            {"x": 1, "model": model, "requester": who}, separators=(",", ":")
        )

    def test_texts_of_64_bytes_are_not_cut(self):
        said = parse_event(NATIVE | {"error": "é" * 32, "model": "m" * 64})
        assert (said.error, said.full, said.model, said.extras) == ("é" * 32, "", "m" * 64, "")


class TestNumbers:
    @pytest.mark.parametrize(
        "text, value", [("0", 0), ("7", 7), ('"7"', 7), ('"007"', 7), ("9" * 15, 10**15 - 1)]
    )
    def test_whole_numbers_of_up_to_15_digits(self, text, value):
        assert parse_line(json.dumps(NATIVE).replace('"seq": 3', f'"seq": {text}')).seq == value

    @pytest.mark.parametrize(
        "text",
        ["-1", "1.0", "1e3", "9007199254740993", "true", "false", '"0x10"', '"1e3"', '"nan"', '""',
         '"-1"', '" 7"', '"7\\n"', '"٧"', '"1_0"', "[1]", "{}", "9" * 4000],
    )  # fmt: skip
    @pytest.mark.parametrize("name", ["seq", "created_at", "started_at", "completed_at"])
    def test_any_other_is_refused_and_the_field_named(self, name, text):
        line = json.dumps({**NATIVE, name: "HERE"}).replace('"HERE"', text)
        wrong = complaint(line)
        assert not isinstance(wrong, Malformed)
        assert str(wrong).startswith(name)
        assert wrong.key == "desk/ollama/r1/7"

    def test_a_frames_field_is_named_as_the_sender_wrote_it(self):
        assert str(complaint(json.dumps(frame(createdAt="x")))).startswith("createdAt")

    @pytest.mark.parametrize("text", ["0x10", "NaN", "Infinity", "-Infinity", "01", "1.", "+1"])
    def test_what_json_does_not_know_is_no_event(self, text):
        wrong = complaint(json.dumps(NATIVE).replace('"seq": 3', f'"seq": {text}'))
        assert isinstance(wrong, Malformed)

    @pytest.mark.parametrize("text", ["9" * 5000, "1e400", "-1e400"])
    def test_a_number_that_could_not_be_read_back_is_no_event(self, text):
        assert isinstance(complaint(json.dumps(NATIVE)[:-1] + f', "x": {text}}}'), Malformed)


class TestRefused:
    @pytest.mark.parametrize(
        "changed, key",
        [
            ({"origin": ""}, "/ollama/r1/7"),
            ({"origin": "Desk"}, "Desk/ollama/r1/7"),
            ({"origin": 7}, "/ollama/r1/7"),
            ({"origin": "d" * 64}, "d" * 64 + "/ollama/r1/7"),
            ({"engine": ""}, "desk//r1/7"),
            ({"engine": None}, "desk//r1/7"),
            ({"engine": "é" * 33}, "desk/" + "é" * 33 + "/r1/7"),
            ({"run": "r" * 65}, "desk/ollama/" + "r" * 65 + "/7"),
            ({"run": 1}, "desk/ollama//7"),
            ({"id": ""}, "desk/ollama/r1/"),
            ({"id": 7}, "desk/ollama/r1/"),
            ({"id": "a/b" * 100}, "desk/ollama/r1/" + "a%2Fb" * 85 + "a"),
            ({"id": "\ud800"}, "desk/ollama/r1/?"),
            ({"state": "paused"}, "desk/ollama/r1/7"),
            ({"state": "Running"}, "desk/ollama/r1/7"),
            ({"state": None}, "desk/ollama/r1/7"),
            ({"state": ["running"]}, "desk/ollama/r1/7"),
            ({"node": "Node A"}, "desk/ollama/r1/7"),
            ({"node": 1}, "desk/ollama/r1/7"),
            ({"created_at": 0}, "desk/ollama/r1/7"),
            ({"created_at": None}, "desk/ollama/r1/7"),
            ({"error": {"code": 1}}, "desk/ollama/r1/7"),
            ({"error": "\udfff"}, "desk/ollama/r1/7"),
            ({"model": ["m"]}, "desk/ollama/r1/7"),
            ({"resync": 1}, "desk/ollama/r1/7"),
            ({"resync": "true"}, "desk/ollama/r1/7"),
            ({"event_id": "i" * 257}, "desk/ollama/r1/7"),
            ({"x": "\ud800"}, "desk/ollama/r1/7"),
            ({"\ud800": 1}, "desk/ollama/r1/7"),
        ],
    )
    def test_a_part_out_of_its_bounds_is_refused_with_what_can_be_told_of_the_key(self, changed, key):  # fmt: skip
        wrong = complaint(json.dumps(NATIVE | changed))
        assert not isinstance(wrong, Malformed)
        assert wrong.key == key

    def test_an_event_object_is_refused_as_its_line_is(self):
        with pytest.raises(Invalid) as found:
            parse_event(NATIVE | {"x": object()})
        assert found.value.key == "desk/ollama/r1/7"

    def test_a_broad_removal_is_named_as_no_job_is(self):
        with pytest.raises(Invalid, match="removed_at must be above 0"):
            parse_event({"event": "remove", "origin": "desk", "id": "7", "removed_at": 0})
        line = json.dumps({"event": "remove", "origin": "desk", "id": "7", "removed_at": -1})
        assert complaint(line).key == "desk/7"

    def test_without_origin_and_id_there_is_no_key(self):
        assert not complaint('{"event":"report","engine":"ollama"}').key


class TestMalformed:
    @pytest.mark.parametrize(
        "line",
        ["", "\n", "nonsense", "{", "[]", "7", "null", '"report"', '{"a":1} {"b":2}', "{'event':'report'}",
         "{}", '{"event":null}', '{"event":"upsert"}', '{"event":["report"]}', '{"event":"\x1b[2J"}',
         '{"method":"workload:started","params":{}}', '{"jsonrpc":2.0,"method":"workload:started"}',
         json.dumps(frame("workload:paused")), json.dumps(frame("workloads:upsert")),
         json.dumps(frame(["workload:started"])), json.dumps(frame(params=[])),
         json.dumps(frame(params={"workloadInfo": None})), json.dumps(frame(params={}))],
    )  # fmt: skip
    def test_what_is_no_event_at_all(self, line):
        assert isinstance(complaint(line), Malformed)

    @pytest.mark.parametrize("line", [b"\xff\xfe{", b'{"event":"\xed\xa0\x80"}', "\ud800"])
    def test_what_is_no_text(self, line):
        assert "UTF-8" in str(complaint(line))

    def test_a_raw_nul_is_no_json_and_an_escaped_one_is_a_character_like_any_other(self):
        assert isinstance(complaint(json.dumps(NATIVE).replace("r1", "r\x00")), Malformed)
        said = parse_line(json.dumps(NATIVE | {"run": "\x00", "error": "a\x00b"}))
        assert (str(said.key), said.error) == ("desk/ollama/%00/7", "a\x00b")

    @pytest.mark.parametrize("bomb", ["[" * 500_000, '{"a":' * 150_000, "[" * 65 + "]" * 65])
    def test_a_depth_bomb(self, bomb):
        assert isinstance(complaint(bomb), Malformed)
        assert "deep" in str(
            complaint(json.dumps(NATIVE)[:-1] + ',"x":' + "[" * 65 + "]" * 65 + "}")
        )

    def test_depth_is_what_counts_and_not_the_number_of_brackets(self):
        deep = "[" * 62 + "]" * 62
        line = json.dumps(NATIVE | {"error": "[" * 99})[:-1] + f',"x":{deep},"y":[{deep}]}}'
        assert parse_line(line).extras == f'{{"x":{deep},"y":[{deep}]}}'

    def test_an_object_may_not_be_deeper_than_a_line(self):
        deep = []
        for _ in range(65):
            deep = [deep]
        with pytest.raises(Malformed, match="deeper"):
            parse_event(NATIVE | {"x": deep})

    def test_a_line_of_1_mib_is_read_and_a_longer_one_is_not(self):
        room = LINE_BYTES_MAX - len(json.dumps(NATIVE | {"x": ""}))
        for filling in ("x" * room, "é" * (room // 2) + "x" * (room % 2)):
            line = json.dumps(NATIVE | {"x": filling}, ensure_ascii=False)
            assert len(parse_line(line + "\r\n").extras) == len(filling) + len('{"x":""}')
            parse_line(line.encode() + b"\n")
            assert isinstance(complaint(line + " "), Malformed)
            assert isinstance(complaint(line.encode() + b" "), Malformed)

    def test_a_byte_order_mark_is_no_complaint(self):
        assert parse_line(b"\xef\xbb\xbf" + json.dumps(NATIVE).encode()) == RUNNING


#: Text is slow to make up: a thousand examples at most.
some = settings(max_examples=min(1_000, settings().max_examples))

text = st.text(st.characters(codec="utf-8"), max_size=80)
number = st.integers(0, 10**15 - 1)
keys = st.builds(
    Key, st.just("desk"), text.filter(lambda t: 0 < len(t.encode()) <= 64),
    text.filter(lambda t: len(t.encode()) <= 64), text.filter(lambda t: 0 < len(t.encode()) <= 256),
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
reports = st.fixed_dictionaries(
    {
        "event": st.just("report"), "key": keys, "created_at": number.filter(bool),
        "state": st.sampled_from(["queued", "running", "completed", "failed", "cancelled"]),
        "node": st.sampled_from(["", "a", "node-b.lan"]), "seq": number, "started_at": number,
        "completed_at": number, "error": text, "model": text, "requester": text, "resync": st.booleans(),
        "event_id": text.filter(lambda t: len(t.encode()) <= 256),
    }
).flatmap(
    lambda said: st.dictionaries(text.filter(lambda t: t not in NATIVE and t != "event_id"), values, max_size=3)
    .map(lambda unknown: {**unknown, **{k: v for k, v in said.items() if k != "key"}, **said["key"]._asdict()})
)  # fmt: skip


def test_our_own_json_gives_long_texts_back_whole():
    long = {"error": "é" * 65, "model": "m" * 65, "requester": "w" * 65}
    event = parse_event(NATIVE | long)
    assert to_json(event).items() >= long.items()
    assert parse_event(to_json(event)) == event


def test_our_own_json_is_not_misled_by_a_frames_unknown_field_of_one_of_our_names():
    said = to_json(parse_event(frame(node="x", created_at=5, run="x", requester="you")))
    assert parse_event(said) == RUNNING


@some
@given(reports)
def test_our_own_json_of_an_event_reads_as_that_event(said):
    event = parse_event(said)
    assert parse_event(to_json(event)) == event
    assert (
        parse_line(json.dumps(to_json(event), ensure_ascii=False, separators=(",", ":"))) == event
    )
    absent = {name for name, value in said.items() if value in ("", 0, None)}
    assert {name: to_json(event)[name] for name in said.keys() - absent} == {
        name: said[name] for name in said.keys() - absent
    }


@some
@given(keys, number, st.booleans(), st.booleans())
def test_our_own_json_of_a_removal_reads_as_that_removal(key, removed_at, force, broad):
    event = (
        RemovePair(origin=key.origin, id=key.id, removed_at=removed_at, force=force)
        if broad
        else Remove(key=key, removed_at=removed_at, force=force, event_id="n")
    )
    assert parse_event(to_json(event)) == event


@some
@given(st.dictionaries(st.sampled_from([*NATIVE, "x"]), values) | values)
def test_whatever_an_object_holds_it_is_an_event_or_one_complaint(said):
    for name in ("report", "remove"):
        event = {**said, "event": name} if isinstance(said, dict) else said
        try:
            parse_event(event)
        except Invalid as wrong:
            assert str(wrong).isprintable()  # noqa: PT017


@some
@given(st.binary(max_size=60) | st.text(max_size=60))
def test_whatever_a_line_holds_it_is_one_complaint(line):
    complaint(line)
