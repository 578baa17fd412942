"""The dashboard's list alone, played at random in a real browser: it never steps back, and always arrives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.dashboard import Dashboard

PLAY = (Path(__file__).parent / "play_list.js").read_text().partition("\nasync ")
#: An expression that a page evaluates to a function of the seed.
FUNCTION = f"async {PLAY[2]}"

#: Feeds it whole, then in pieces of every size: each must tell the same events.
PARSE = """async (text) => {
    const { parser } = await import("/static/stream.js");
    const told = (size) => {
        const found = [];
        const feed = parser((event) => found.push(event));
        for (let at = 0; at < text.length; at += size) feed(text.slice(at, at + size));
        return JSON.stringify(found);
    };
    const whole = told(text.length);
    for (let size = 1; size < text.length; size++) if (told(size) !== whole) throw new Error(`in pieces of ${size}`);
    return JSON.parse(whole);
}"""


@pytest.mark.parametrize("seed", [1, 20_261_130])
def test_no_order_of_changes_breaks_and_lists_hides_or_revives_a_job(
    dashboard: Dashboard, seed: int
) -> None:
    counts = dashboard.page.evaluate(FUNCTION, seed)
    assert counts["steps"] == 300 * 60
    assert min(counts["removals"], counts["loads"]) > 500  # it did play


def test_the_stream_is_read_alike_however_it_is_cut(dashboard: Dashboard) -> None:
    text = (
        ": beat\r\nevent: change\r\nid: a.1\r\ndata: {}\r\n\r\nevent: doubt\ndata: 1\ndata: 2\n\n"
        "\rdata:x\r\rid: 9\nretry: 5\n\ndata\n\n: beat\n\nevent: e\ndata: é\u2028 \n\n"
    )
    assert dashboard.page.evaluate(PARSE, text) == [
        {"event": "change", "data": "{}", "id": "a.1"},
        {"event": "doubt", "data": "1\n2", "id": None},
        {"event": "message", "data": "x", "id": None},
        {"event": "", "data": "", "id": "9"},
        {"event": "message", "data": "", "id": None},
        {"event": "e", "data": "é\u2028 ", "id": None},
    ]
