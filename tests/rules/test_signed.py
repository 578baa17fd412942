"""Statements of peers: one reading, one form that is signed, and everything else refused by its name."""

from __future__ import annotations

import json
import random

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import Untrusted
from broker.rules.signed import (
    DEPTH_MAX,
    INTEGER_MAX,
    canonical,
    message,
    parse,
    parse_value,
    to_bytes,
    to_text,
    verify,
)

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()
BODY = {"by": "a", "epoch": 1, "node": "b"}
SIG = to_text(KEY.sign(message("fleet-broker.endorsement.v1", BODY)))

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
integers = st.integers(-INTEGER_MAX, INTEGER_MAX)
statements = st.recursive(
    st.booleans() | integers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
).filter(lambda value: depth_of(value) <= DEPTH_MAX)
objects = st.dictionaries(texts, statements, max_size=3).filter(
    lambda value: depth_of(value) <= DEPTH_MAX
)


def depth_of(value):
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


def nested(depth):
    return '{"a":' * depth + "1" + "}" * depth


def refused(call, *args):
    with pytest.raises(Untrusted) as found:
        call(*args)
    assert str(found.value).isprintable()
    assert len(str(found.value)) < 200
    return found.value.rule


STRICT = {
    "duplicate key": ('{"a":1,"a":1}', "duplicate_key"),
    "duplicate key, escaped": ('{"a":1,"\\u0061":2}', "duplicate_key"),
    "duplicate key inside": ('{"a":[{"b":1,"c":2,"b":3}]}', "duplicate_key"),
    "float": ('{"a":1.0}', "float"),
    "exponent": ('{"a":1e3}', "float"),
    "huge exponent": ('{"a":1e999}', "float"),
    "NaN": ('{"a":NaN}', "malformed_json"),
    "infinity": ('{"a":-Infinity}', "malformed_json"),
    "2^53": (f'{{"a":{2**53}}}', "big_integer"),
    "-2^53": (f'{{"a":-{2**53}}}', "big_integer"),
    "2^64-1": (f'{{"a":{2**64 - 1}}}', "big_integer"),
    "5,000 digits": ('{"a":' + "9" * 5000 + "}", "big_integer"),
    "null": ('{"a":null}', "null"),
    "too deep": (nested(DEPTH_MAX + 1), "too_deep"),
    "arrays too deep": ('{"a":' + "[" * DEPTH_MAX + "]" * DEPTH_MAX + "}", "too_deep"),
    "deeper than the stack": ("[" * 10_000 + "]" * 10_000, "too_deep"),
    "deeper than the stack, open": ('{"a":' * 3_000, "too_deep"),
    "lone surrogate": ('{"a":"\\ud800"}', "lone_surrogate"),
    "lone surrogate in a key": ('{"\\udfff":1}', "lone_surrogate"),
    "surrogates in the wrong order": ('{"a":"\\udc00\\ud800"}', "lone_surrogate"),
    "raw surrogate": ('{"a":"\ud800"}', "lone_surrogate"),
    "no UTF-8": (b'{"a":"\xff"}', "malformed_json"),
    "overlong UTF-8": (b'{"a":"\xc0\xaf"}', "malformed_json"),
    "surrogate in UTF-8": (b'{"a":"\xed\xa0\x80"}', "malformed_json"),
    "UTF-16": ('{"a":1}'.encode("utf-16"), "malformed_json"),
    "byte order mark": ('\ufeff{"a":1}', "malformed_json"),
    "control character": ('{"a":"\n"}', "malformed_json"),
    "leading zero": ('{"a":01}', "malformed_json"),
    "plus sign": ('{"a":+1}', "malformed_json"),
    "trailing comma": ('{"a":1,}', "malformed_json"),
    "trailing data": ('{"a":1}{}', "malformed_json"),
    "comment": ('{"a":1}//', "malformed_json"),
    "single quotes": ("{'a':1}", "malformed_json"),
    "cut": ('{"a":"', "malformed_json"),
    "nothing": ("", "malformed_json"),
    "an array": ("[1]", "malformed_json"),
    "a text": ('"a"', "malformed_json"),
    "other digits": ('{"a":\u0661}', "malformed_json"),
}  # fmt: skip


class TestParse:
    @pytest.mark.parametrize("text,rule", STRICT.values(), ids=STRICT)
    def test_what_two_readers_could_read_differently_is_refused_by_name(self, text, rule):
        assert refused(parse, text, 100_000) == rule
        if isinstance(text, str) and rule != "lone_surrogate":
            assert refused(parse, text.encode(), 100_000) == rule

    @pytest.mark.parametrize(
        "text,value",
        [
            ('{"a":9007199254740991}', {"a": INTEGER_MAX}),
            ('{"a":-9007199254740991}', {"a": -INTEGER_MAX}),
            ('{"a":-0}', {"a": 0}),
            ('{"a":"\\ud83d\\ude00"}', {"a": "\U0001f600"}),
            ('{"a":"1.5 [[[[[[[[[[ NaN null"}', {"a": "1.5 [[[[[[[[[[ NaN null"}),
            (' {\n"a" :\t[ true , false , { } , [ ] ] }\r\n', {"a": [True, False, {}, []]}),
        ],
    )
    def test_what_has_one_meaning_is_read(self, text, value):
        assert parse(text, 1000) == parse(text.encode(), 1000) == value

    def test_the_bounds_are_the_last_that_fit(self):
        assert parse(nested(DEPTH_MAX), 1000)
        text = '{"a":"\u00e9"}'
        assert len(text) == 9
        assert parse(text, 10) == {"a": "\u00e9"}
        assert refused(parse, text, 9) == refused(parse, text.encode(), 9) == "too_large"

    def test_a_mebibyte_is_refused_before_it_is_read(self):
        assert refused(parse, "[" * 2**20, 16 * 1024) == "too_large"

    def test_an_array_is_read_where_one_is_expected(self):
        assert parse_value("[1,[2]]", 100) == [1, [2]]

    @given(st.text(max_size=100) | st.binary(max_size=100))
    def test_whatever_comes_is_an_object_or_one_complaint(self, text):
        try:
            value = parse(text, 80)
        except Untrusted as wrong:
            rule = wrong.rule
        else:
            rule = "read"
            assert json.loads(text) == value
        assert rule in {
            "read", "malformed_json", "too_large", "lone_surrogate", "duplicate_key", "null", "float",
            "big_integer",
        }  # fmt: skip

    @given(
        objects, st.sampled_from(["1.5", "1e2", "null", "NaN", str(2**53), '"\\ud800"']), st.data()
    )
    def test_one_bad_value_anywhere_spoils_the_whole(self, value, bad, data):
        paths = list(places(value))
        spoiled = put(value, data.draw(st.sampled_from(paths)), "@@")
        text = json.dumps(spoiled, ensure_ascii=False).replace('"@@"', bad)
        assert refused(parse, text, 100_000) != "too_large"


def places(value, path=()):
    """Every path in a statement at which one more value can be put."""
    if isinstance(value, dict) and len(path) < DEPTH_MAX:
        yield (*path, "@")
        for name, inner in value.items():
            yield from places(inner, (*path, name))
    elif isinstance(value, list) and len(path) < DEPTH_MAX:
        yield (*path, len(value))
        for at, inner in enumerate(value):
            yield from places(inner, (*path, at))


def put(value, path, bad):
    if not path:
        return bad
    if isinstance(value, dict):
        return value | {path[0]: put(value.get(path[0]), path[1:], bad)}
    return [*value[: path[0]], put([*value, None][path[0]], path[1:], bad), *value[path[0] + 1 :]]


class TestCanonical:
    def test_it_is_sorted_tight_and_in_utf_8(self):
        value = {"b": [1, True, {"z": "\u00e9", "a": '\n"/'}], "a": -0, "\u00e9": {}}
        expected = '{"a":0,"b":[1,true,{"a":"\\n\\"/","z":"\u00e9"}],"\u00e9":{}}'
        assert canonical(value) == expected.encode()

    def test_names_are_in_the_order_of_their_bytes_also_beyond_the_first_plane(self):
        """UTF-16, by which other languages sort, has these two the other way round."""
        assert canonical({"\U0001f600": 1, "\uff5e": 2}) == '{"\uff5e":2,"\U0001f600":1}'.encode()

    @given(statements)
    def test_what_is_written_reads_back_and_writes_the_same(self, value):
        raw = canonical(value)
        assert parse_value(raw, len(raw)) == value
        assert canonical(parse_value(raw, len(raw))) == raw

    @given(objects, st.randoms(use_true_random=False))
    def test_however_it_was_laid_out_it_has_one_form(self, value, chance):
        text = json.dumps(shuffled(value, chance), indent=chance.choice([None, 2]))
        assert canonical(parse(text, 100_000)) == canonical(value)

    @given(statements, statements)
    def test_two_statements_never_share_a_form(self, one, other):
        """Python holds True == 1, a signature must not."""
        same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
        assert (canonical(one) == canonical(other)) == same

    @pytest.mark.parametrize(
        "value,rule",
        [
            ({"a": 1.0}, "float"),
            ({"a": float("nan")}, "float"),
            ({"a": None}, "null"),
            ({"a": 2**53}, "big_integer"),
            ({"a": "\ud800"}, "lone_surrogate"),
            ({"\ud800": 1}, "lone_surrogate"),
            ({1: 1}, "malformed_json"),
            ({"a": b"bytes"}, "malformed_json"),
            ({"a": {1, 2}}, "malformed_json"),
            (json.loads(nested(DEPTH_MAX + 1)), "too_deep"),
        ],
    )
    def test_what_could_not_be_read_back_is_not_signed(self, value, rule):
        assert refused(canonical, value) == refused(message, "tag", value) == rule


def shuffled(value, chance: random.Random):
    if isinstance(value, dict):
        items = [(name, shuffled(inner, chance)) for name, inner in value.items()]
        chance.shuffle(items)
        return dict(items)
    return [shuffled(inner, chance) for inner in value] if isinstance(value, list) else value


class TestSignature:
    def test_it_is_made_over_tag_nul_and_the_canonical_form(self):
        assert message("a.v1", {"b": 1}) == b'a.v1\0{"b":1}'

    def test_it_verifies_under_its_key_type_and_statement(self):
        assert verify(PUBLIC, "fleet-broker.endorsement.v1", BODY, SIG)
        assert verify(PUBLIC, "fleet-broker.endorsement.v1", dict(reversed(BODY.items())), SIG)

    @pytest.mark.parametrize("tag", ["fleet-broker.removal.v1", "fleet-broker.endorsement.v2", ""])
    def test_for_one_type_it_is_none_for_another(self, tag):
        assert not verify(PUBLIC, tag, BODY, SIG)

    @pytest.mark.parametrize(
        "body",
        [BODY | {"by": "c"}, BODY | {"epoch": 2}, BODY | {"epoch": True}, BODY | {"more": 1}, {}]
        + [{name: BODY[name] for name in BODY if name != left} for left in BODY],
    )
    def test_for_one_statement_it_is_none_for_another(self, body):
        assert not verify(PUBLIC, "fleet-broker.endorsement.v1", body, SIG)

    @pytest.mark.parametrize(
        "sig",
        [
            "", SIG[:-1], SIG + "=", SIG + "==", SIG + "A", SIG + "\n", " " + SIG, "A" * 86, SIG[:40],
            SIG[:-1] + ("B" if SIG[-1] != "B" else "C"), to_text(bytes(64)), "\u00e9" * 86, "\ud800",
        ],
    )  # fmt: skip
    def test_another_text_is_no_signature(self, sig):
        assert not verify(PUBLIC, "fleet-broker.endorsement.v1", BODY, sig)

    @pytest.mark.parametrize("key", [b"", PUBLIC[:-1], PUBLIC + b"\0", bytes(32), b"\xff" * 32])
    def test_another_key_did_not_sign(self, key):
        assert not verify(key, "fleet-broker.endorsement.v1", BODY, SIG)

    def test_what_is_no_statement_has_no_signature(self):
        assert not verify(PUBLIC, "fleet-broker.endorsement.v1", BODY | {"epoch": 1.0}, SIG)


class TestBase64:
    @given(st.binary(max_size=70))
    def test_bytes_come_back(self, raw):
        text = to_text(raw)
        assert set(text).isdisjoint("+/=")
        if raw:
            assert to_bytes(text) == raw

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "QQ==",
            "QR",
            "QUJ",
            "+A",
            "/w",
            "A",
            "QUJD\n",
            " QUJD",
            "QU JD",
            "QUJD=",
            "\u00e9\u00e9",
        ],
    )
    def test_no_second_text_means_the_same_bytes(self, text):
        assert refused(to_bytes, text) == "bad_encoding"

    @given(st.text(max_size=12))
    def test_any_text_is_the_one_form_or_refused(self, text):
        try:
            raw = to_bytes(text)
        except Untrusted:
            return
        assert to_text(raw) == text
