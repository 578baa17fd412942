"""What may be posted, read without a server: the fields that are named, the names that are refused, what is kept."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import Invalid, Malformed
from broker.rules.event import Remove, RemovePair, Report
from broker.rules.ingress import EVENTS_MAX, read
from broker.rules.key import Key
from broker.rules.wire import parse_line

NODE = "here"
REPORT = {
    "event": "report", "origin": "desk", "engine": "ollama", "run": "r1", "id": "7",
    "state": "running", "node": "a", "seq": 3, "created_at": 1000,
}  # fmt: skip
INFO = {
    "id": "7", "engine": "ollama", "runId": "r1", "state": "running", "originatedFrom": "desk",
    "scheduledOn": "a", "createdAt": 1000, "seq": 3,
}  # fmt: skip
REMOVE = {"event": "remove", "origin": "desk", "id": "7"}


def frame(method="workload:started", params=None, **changed):
    params = {"workloadInfo": INFO | changed} if params is None else params
    return {"jsonrpc": "2.0", "method": method, "params": params}


def unframe(**changed):
    return frame("workloads:remove", {"workloadId": "7", "originatedFrom": "desk"} | changed)


def one(value):
    """The event of a body that is a single one."""
    [event], is_array = read(value if isinstance(value, str) else json.dumps(value), NODE)
    assert not is_array
    return event


def refused(value):
    """The complaint about a body: one line, its field a text that any reader can read."""
    with pytest.raises(Invalid) as found:
        read(value if isinstance(value, (str, bytes)) else json.dumps(value), NODE)
    assert str(found.value).isprintable()
    found.value.field.encode()
    return found.value


def without(said, name):
    return {key: value for key, value in said.items() if key != name}


def with_name(said, name, value=1):
    """The object as text, with one more member at its end: a dict could not hold the same name twice."""
    return f"{json.dumps(said)[:-1]},{json.dumps(name)}:{json.dumps(value)}}}"


class TestBodies:
    def test_an_event_is_one_and_an_array_is_many_in_order(self):
        assert read(json.dumps(REPORT), NODE) == ([parse_line(json.dumps(REPORT))], False)
        events, is_array = read(json.dumps([REPORT, frame(), REMOVE]), NODE)
        assert is_array
        assert [type(event) for event in events] == [Report, Report, RemovePair]
        assert events[0] == events[1]

    @pytest.mark.parametrize("count", [0, EVENTS_MAX + 1])
    def test_an_array_of_none_or_too_many_is_refused(self, count):
        assert refused([REPORT] * count).index is None

    def test_an_array_of_the_most_is_read(self):
        events, _ = read(json.dumps([REPORT | {"seq": n} for n in range(EVENTS_MAX)]), NODE)
        assert [event.seq for event in events] == list(range(EVENTS_MAX))

    @pytest.mark.parametrize("body", ["", "{", "7", "null", '"x"', "[[]]", "[1]", b"\xff", "{}{}"])
    def test_what_is_no_object_is_refused(self, body):
        assert isinstance(refused(body), Malformed)

    @pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
    def test_what_is_no_number_everywhere_is_refused(self, number):
        assert isinstance(refused(f'{json.dumps(REPORT)[:-1]},"x":{number}}}'), Malformed)

    def test_it_is_nested_so_deep_and_no_deeper(self):
        deep = '{{"event":"report","x":{}1{}}}'
        assert "deeper" in str(refused(deep.format("[" * 64, "]" * 64)))
        assert "deeper" not in str(refused(deep.format("[" * 63, "]" * 63)))
        assert "deeper" in str(refused("[" * 10_000))

    def test_a_complaint_tells_the_line_of_a_body_that_has_several(self):
        assert "line 3 column 1" in str(refused('{\n"event":"report"\nx}'))

    def test_of_several_the_first_that_is_none_is_named_by_its_place(self):
        wrong = refused([REPORT, REPORT, REPORT | {"state": "done"}, {}])
        assert (wrong.field, wrong.index) == ("state", 2)


class TestOrigins:
    @pytest.mark.parametrize("said", [{"origin": ""}, {"origin": None}, {}])
    def test_a_report_without_an_origin_is_of_this_node(self, said):
        assert one(without(REPORT, "origin") | said).key == Key(NODE, "ollama", "r1", "7")

    @pytest.mark.parametrize("origin", ["", None])
    def test_so_is_a_frame(self, origin):
        assert one(frame(originatedFrom=origin)).key.origin == NODE
        assert (
            one(frame(params={"workloadInfo": without(INFO, "originatedFrom")})).key.origin == NODE
        )

    @pytest.mark.parametrize("said", [without(REMOVE, "origin"), unframe(originatedFrom="")])
    def test_so_is_a_removal(self, said):
        assert one(said) == RemovePair(origin=NODE, id="7")

    def test_another_origin_is_taken_as_it_is(self):
        assert one(REPORT).key.origin == one(frame()).key.origin == one(unframe()).origin == "desk"

    @pytest.mark.parametrize("origin", [7, True, ["desk"], {}, "Desk", "a b", "x" * 64])
    def test_what_is_no_name_is_refused(self, origin):
        assert refused(REPORT | {"origin": origin}).field == "origin"
        assert refused(REMOVE | {"origin": origin}).field == "origin"
        field = "params.workloadInfo.originatedFrom"
        assert refused(frame(originatedFrom=origin)).field == field
        assert refused(unframe(originatedFrom=origin)).field == "params.originatedFrom"


class TestFields:
    @pytest.mark.parametrize("name", ["engine", "id", "state", "created_at"])
    def test_a_report_that_lacks_one_is_refused_by_its_name(self, name):
        assert refused(without(REPORT, name)).field == name
        assert refused(REPORT | {name: None}).field == name

    @pytest.mark.parametrize("name", ["engine", "id", "state", "createdAt"])
    def test_so_is_a_frame_by_the_path(self, name):
        wrong = refused(frame(params={"workloadInfo": without(INFO, name)}))
        assert wrong.field == f"params.workloadInfo.{name}"

    def test_so_is_a_removal(self):
        assert refused(without(REMOVE, "id")).field == "id"
        assert refused(unframe(workloadId=None)).field == "params.workloadId"

    @pytest.mark.parametrize("state", ["Running", "RUNNING", "done", "", " running", 2, None, []])
    def test_a_state_is_one_of_the_five_as_they_are_spelled(self, state):
        assert refused(REPORT | {"state": state}).field == "state"
        assert refused(frame(state=state)).field == "params.workloadInfo.state"

    @pytest.mark.parametrize("id", ["x" * 257, "é" * 129, "\ud800", 7])
    def test_an_id_beyond_its_bounds_is_refused(self, id):
        assert refused(REPORT | {"id": id}).field == "id"
        assert refused(unframe(workloadId=id)).field == "params.workloadId"

    @pytest.mark.parametrize("id", ["x" * 256, "é" * 128])
    def test_an_id_of_256_bytes_is_taken(self, id):
        assert one(REPORT | {"id": id}).key.id == one(unframe(workloadId=id)).id == id

    @pytest.mark.parametrize("number", [-1, 1.5, 10**15, "1e3", "0" * 16, " 1", "", True, []])
    @pytest.mark.parametrize("name", ["seq", "created_at", "started_at", "completed_at"])
    def test_a_number_beyond_its_bounds_is_refused(self, name, number):
        assert refused(REPORT | {name: number}).field == name

    @pytest.mark.parametrize("number", [10**15 - 1, "9" * 15, "007"])
    def test_a_number_within_is_taken(self, number):
        assert one(REPORT | {"seq": number}).seq == int(number)

    def test_the_path_leads_to_the_field_also_where_the_envelope_has_one_of_that_name(self):
        assert refused(frame(id="")).field == "params.workloadInfo.id"
        params = {"workloadInfo": INFO, "resync": "yes"}
        assert refused(frame(params=params)).field == "params.resync"

    @pytest.mark.parametrize(
        "said, field",
        [
            (REPORT | {"event": "reported"}, "event"),
            (REPORT | {"event": ["report"]}, "event"),
            ({}, ""),
            (without(frame(), "jsonrpc"), "jsonrpc"),
            (frame() | {"jsonrpc": "1.0"}, "jsonrpc"),
            (frame() | {"jsonrpc": 2.0}, "jsonrpc"),
            (frame("workload:failed"), "method"),
            (frame("Workload:started"), "method"),
            (frame("workloads:upsert"), "method"),
            (without(frame(), "params"), "params"),
            (frame(params=[]), "params"),
            (frame(params={}), "params.workloadInfo"),
            (frame(params={"workloadInfo": "x"}), "params.workloadInfo"),
            (REPORT | {"resync": "true"}, "resync"),
            (REMOVE | {"run": "r"}, "run"),
            (REMOVE | {"removed_at": 0}, "removed_at"),
        ],
    )
    def test_what_is_no_event_is_refused_by_the_field_that_says_so(self, said, field):
        assert refused(said).field == field


#: Of each known field a name that is not it.
SLIPS = [
    "State", "STATE", "\u017ftate", "Engine", "ID", "Id", "Seq", "\u017feq", "reſync", "Resync",
    "created_At", "Event_id", "Removed_at", "Force",
]  # fmt: skip
FRAME_SLIPS = ["createdat", "OriginatedFrom", "runid", "\u017ftate", "scheduledon", "Resync", "ID"]


class TestNames:
    @pytest.mark.parametrize("name", SLIPS)
    def test_a_known_one_but_for_its_case_is_refused(self, name):
        for said in (REPORT, REMOVE):
            wrong = refused(said | {name: 1})
            assert isinstance(wrong, Malformed)
            assert wrong.field == name

    @pytest.mark.parametrize("name", FRAME_SLIPS)
    def test_so_is_one_of_a_frame(self, name):
        assert refused(frame(**{name: 1})).field == f"params.workloadInfo.{name}"

    @pytest.mark.parametrize(
        "name", ["wor\u212aloadId", "WorkloadId", "removedat", "reSync", "Engine"]
    )
    def test_so_is_one_of_a_removal_frame(self, name):
        assert refused(unframe(**{name: 1})).field == f"params.{name}"

    @pytest.mark.parametrize("name", ["wor\u212aloadInfo", "workloadinfo", "RESYNC", "re\u017fync"])
    def test_so_is_one_beside_the_workload(self, name):
        params = {"workloadInfo": INFO, name: True}
        assert refused(frame(params=params)).field == f"params.{name}"

    @pytest.mark.parametrize("name", ["Method", "JSONRPC", "paramS", "param\u017f", "Event", "Id"])
    def test_so_is_one_of_the_envelope(self, name):
        assert refused(frame() | {name: "2.0"}).field == name

    @pytest.mark.parametrize(
        "one_name, other", [("note", "Note"), ("maſs", "mass"), ("K", "\u212a")]
    )
    def test_two_that_differ_by_nothing_but_case_are_refused_wherever_they_stand(
        self, one_name, other
    ):
        both = {one_name: 1, other: 2}
        assert refused(REPORT | both).field == other
        assert refused(frame() | both).field == other
        assert refused(frame(**both)).field == f"params.workloadInfo.{other}"
        params = {"workloadInfo": INFO} | both
        assert refused(frame(params=params)).field == f"params.{other}"
        assert refused(unframe(**both)).field == f"params.{other}"

    def test_within_a_value_of_its_own_a_producer_names_as_it_likes(self):
        said = one(REPORT | {"labels": {"State": 1, "state": 2, "STATE": 3}})
        assert json.loads(said.extras) == {"labels": {"State": 1, "state": 2, "STATE": 3}}

    @pytest.mark.parametrize(
        "name, first, last", [("state", "Nonsense", "running"), ("seq", -1, 3), ("x", {}, 1)]
    )
    def test_of_the_very_same_name_the_last_value_counts(self, name, first, last):
        said = {name: first} | without(REPORT, name)
        assert one(with_name(said, name, last)) == one(without(REPORT, name) | {name: last})

    def test_so_the_last_is_the_one_that_must_be_good(self):
        assert refused(with_name(REPORT, "state", "Nonsense")).field == "state"

    def test_a_name_that_no_text_can_hold_is_told_without_it(self):
        assert refused(r'{"event":"report","a\ud800":1,"A\ud800":2}').field == "A?"
        assert len(refused({"event": "report", "x" * 9999: 1, "X" * 9999: 2}).field) <= 100


class TestUnknownFields:
    EXTRA = (
        '"n": 1.10, "big":123456789012345678901234567890 ,"t":"\\u00e9 }]", "o":{ "a" : [1 , 2]}'
    )

    def test_they_are_kept_byte_for_byte_alone_and_in_an_array(self):
        line = f"{json.dumps(REPORT)[:-1]},{self.EXTRA}}}"
        kept = parse_line(line).extras
        assert '"n":1.10' in kept
        assert one(line).extras == kept
        events, _ = read(f" [ {line} ,\n{line}] ", NODE)
        assert [event.extras for event in events] == [kept, kept]

    def test_those_of_a_frame_too_also_where_its_origin_was_stamped(self):
        info = f"{json.dumps(without(INFO, 'originatedFrom'))[:-1]},{self.EXTRA}}}"
        line = f'{{"jsonrpc":"2.0","method":"workload:started","params":{{"workloadInfo":{info}}}}}'
        [event], _ = read(f"[{line}]", NODE)
        assert event.extras == one(line).extras
        assert '"o":{ "a" : [1 , 2]}' in event.extras


_names = st.sampled_from(
    ["event", "origin", "engine", "run", "id", "state", "node", "seq", "created_at", "resync", "State",
     "jsonrpc", "method", "params", "workloadInfo", "workloadId", "originatedFrom", "createdAt"]
) | st.text(max_size=4)  # fmt: skip
_leaves = (
    st.none() | st.booleans() | st.integers(-2, 10**16) | st.floats() | st.text(max_size=4)
    | st.sampled_from(["report", "remove", "desk", "running", "2.0", "workload:started", "workloads:remove"])
)  # fmt: skip
#: Any JSON, and much that is nearly an event.
anything = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_names, inner, max_size=8),
    max_leaves=20,
)
nearly = st.builds(
    lambda base, more, dropped: {k: v for k, v in (base | more).items() if k != dropped},
    st.sampled_from([REPORT, REMOVE, frame(), unframe()]),
    st.dictionaries(_names, _leaves, max_size=2),
    _names,
)


@settings(max_examples=1_000)
@given(anything | nearly | st.lists(nearly, max_size=3))
def test_whatever_comes_is_events_or_one_clear_complaint(value):
    text = json.dumps(value)
    try:
        events, is_array = read(text, NODE)
    except Invalid:
        refused(text)
        return
    assert len(events) == (len(value) if is_array else 1)
    assert all(isinstance(event, Report | Remove | RemovePair) for event in events)


@settings(max_examples=1_000)
@given(nearly)
def test_what_is_taken_is_what_a_line_of_a_file_would_say(value):
    text = json.dumps(value)
    try:
        event = one(text)
    except Invalid:
        return
    origin = event.origin if isinstance(event, RemovePair) else event.key.origin
    if origin != NODE:  # else it was stamped
        assert event == parse_line(text)
