"""What the command line does with foreign text, widths, and lines: no Redis needed."""

from __future__ import annotations

import json
import os
import threading

import pytest

from broker.cli.lines import batches
from broker.cli.table import Column, cells, fit, render
from broker.text import block, safe, to_json

HOSTILE = (
    "\x1b[2J\x1b]0;title\x07 \x9b31m \x7f \u202eevil\u202c \u2066x\u2069 \u2028 \r\n\t\0 \ud800 "
    "[bold red]markup[/] \U000e0041 \u200f"
)
OBEYED = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))] + list(
    "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff\ud800\udfff"
)


@pytest.mark.parametrize("char", OBEYED)
def test_no_character_that_a_terminal_obeys_gets_through(char):
    assert char not in safe(f"a{char}b")
    assert safe(f"a{char}b").isprintable()
    if char not in "\n\t":
        assert char not in block(f"a{char}b")
        assert char not in to_json({f"a{char}b": char}, indent=2)


def test_json_stays_the_same_value():
    value = {HOSTILE: [HOSTILE, "é漢👩‍👧", 2**53 + 1]}
    assert json.loads(to_json(value)) == value


def test_what_is_harmless_stays_as_it_is():
    assert safe("é漢👩‍👧 [bold]x[/bold] \\") == "é漢👩‍👧 [bold]x[/bold] \\"


def test_a_block_keeps_its_lines():
    assert block("a\n\tb\x1b") == "a\n\tb\\x1b"


COLUMNS = (
    Column("KEY", least=8, keep_end=True),
    Column("STATE", style=lambda state: "bad" if state == "failed" else ""),
    Column("NODE", 1, least=4),
    Column("ERROR", 2, least=10),
)
ROWS = [
    ["desk/ollama//0123456789abcdef", "failed", "nas", "something went wrong " * 5],
    ["desk/漢字漢字漢字漢字漢字//7", "running?", "a-very-long-node-name", "-"],
]


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(width):
    lines = render(COLUMNS, ROWS, width)
    assert all(cells(line) <= width for line in lines)
    assert len(lines) == 3


def test_a_narrow_table_keeps_key_and_state():
    head, first, _ = render(COLUMNS, ROWS, 23)
    assert head.split() == ["KEY", "STATE"]
    assert first.split()[0].endswith("cdef")
    assert first.split()[0].startswith("…")
    assert first.split()[1] == "failed"


def test_a_wide_table_cuts_nothing():
    assert ROWS[0][3].strip() in render(COLUMNS, ROWS, 200)[1]


def test_without_a_terminal_nothing_is_cut():
    assert ROWS[0][3].strip() in render(COLUMNS, ROWS)[1]


def test_columns_are_left_out_from_the_least_wanted_on():
    natural = [30, 8, 21, 100]
    assert fit(COLUMNS, natural, 200) == natural
    assert fit(COLUMNS, natural, 36)[3] >= 10
    assert fit(COLUMNS, natural, 35)[3] == 0
    assert fit(COLUMNS, natural, 20)[2] == 0


def test_colours_take_no_room():
    plain, bright = render(COLUMNS, ROWS, 60), render(COLUMNS, ROWS, 60, color=True)
    assert "\x1b[31mfailed\x1b[0m" in bright[1]
    assert [line.replace("\x1b[0m", "") for line in plain] == plain
    assert "\x1b" not in "".join(plain)


# --- lines


def read(tmp_path, data: bytes, lines_max=3, bytes_max=10):
    path = tmp_path / "lines"
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return list(batches(descriptor, lines_max, bytes_max))
    finally:
        os.close(descriptor)


def test_lines_are_numbered_from_one_and_come_in_batches(tmp_path):
    assert read(tmp_path, b"a\nb\n\nd") == [[(1, b"a"), (2, b"b"), (3, b"")], [(4, b"d")]]


def test_a_byte_order_mark_is_taken_off_the_first_line_only(tmp_path):
    bom = b"\xef\xbb\xbf"
    assert read(tmp_path, bom + b"a\n" + bom + b"b\n") == [[(1, b"a"), (2, bom + b"b")]]
    assert read(tmp_path, bom + b"a") == [[(1, b"a")]]


def test_a_line_that_is_too_long_is_cut_one_byte_behind_its_bound(tmp_path):
    assert read(tmp_path, b"x" * 200_000 + b"\nb\n") == [[(1, b"x" * 11), (2, b"b")]]
    assert read(tmp_path, b"b\n" + b"x" * 200_000) == [[(1, b"b"), (2, b"x" * 11)]]


def test_an_empty_input_has_no_batch(tmp_path):
    assert read(tmp_path, b"") == []


def test_long_lines_end_a_batch_early(tmp_path):
    line = b"x" * 1_000_000
    found = read(tmp_path, (line + b"\n") * 12, lines_max=1_000, bytes_max=2_000_000)
    assert [len(batch) for batch in found] == [5, 5, 2]


def test_a_batch_ends_where_the_input_pauses():
    reading, writing = os.pipe()
    found = batches(reading, 1_000, 1_000)
    os.write(writing, b"a\nb\nhalf")
    assert next(found) == [(1, b"a"), (2, b"b")]
    os.write(writing, b" done\n")
    assert next(found) == [(3, b"half done")]
    threading.Timer(0.05, os.close, [writing]).start()
    assert next(found, None) is None
    os.close(reading)
