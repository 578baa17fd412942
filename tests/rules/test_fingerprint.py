"""What is folded of an error, each kind as a case, so that like errors count as one and unlike ones do not."""

from __future__ import annotations

import pytest

from broker.rules.fingerprint import fingerprint

SAME = {
    "digits": ("timed out after 30 s", "timed out after 1,5 s", "timed out after # s"),
    "a port and an address": (
        "connect to 10.0.0.7:8080 failed", "connect to 10.0.12.9:80 failed", "connect to # failed",
    ),
    "a number behind a separator": ("worker-17 lost job 9", "worker-3 lost job 10", "worker-# lost job #"),
    "a number behind an underline": ("slot gpu_0 fell", "slot gpu_1 fell", "slot gpu_# fell"),
    "a unit": ("no answer for 30s, 1h5m", "no answer for 9s, 2h10m", "no answer for #s, #h#m"),
    "an instant": ("late: 2026-11-30T10:13:48.5Z", "late: 2025-01-02T23:59:59.1Z", "late: #-#-#T#Z"),
    "a long number in a word": ("no req1700000001", "no req1700000002", "no req#"),
    "a negative number": ("exit code -9", "exit code -15", "exit code -#"),
    "hex": ("at 0x7f3a10", "at 0xDEADBEEF", "at <hex>"),
    "a digest": ("no blob deadbeef42", "no blob 77aa01ffab9", "no blob <hex>"),
    "a uuid": (
        "job 3f2b8c1e-0000-4000-8000-0123456789ab is gone",
        "job 00000000-0000-4000-8000-FFFFFFFFFFFF is gone",
        "job <hex> is gone",
    ),
    "a path": ("cannot read /tmp/a/b.txt", "cannot read ./other-file", "cannot read <path>"),
    "a path before a colon": ("/var/x: No such file", "/srv/y: No such file", "<path>: No such file"),
    "a home": ("no ~/models/x", "no /models/y", "no <path>"),
    "a windows path": (r"no C:\Temp\x.png", r"no d:\y.png", "no <path>"),
    "a url": ("GET http://gpu-1:11434/api?x=1 refused", "GET https://b/ refused", "GET <path> refused"),
    "double quotes": ('unknown model "a"', 'unknown model "b c"', "unknown model <text>"),
    "single quotes": ("KeyError: 'width'", "KeyError: 'height'", "KeyError: <text>"),
    "backticks": ("no `a`", "no `b`", "no <text>"),
    "a quote that was cut": ("KeyError: 'wid", "KeyError: 'height'", "KeyError: <text>"),
    "white space": ("a  b\n", "a b", "a b"),
}  # fmt: skip

OTHER = {
    "words": ("out of memory", "out of disk"),
    "short hex words are words": ("cafe closed", "face closed"),
    "an apostrophe quotes nothing": ("it's a bug", "it's a feature"),
    "words with a slash": ("read/write failed", "open/close failed"),
    "programs with digits": ("sha256sum: out of memory", "sha1sum: out of memory"),
    "encodings": ("not utf8", "not utf16"),
    "error codes": ("E1101", "E1102"),
    "names of hex letters alone": ("defaced", "acceded"),
}


@pytest.mark.parametrize("one, other, shown", SAME.values(), ids=SAME)
def test_it_folds(one, other, shown):
    assert fingerprint(one) == fingerprint(other) == shown


@pytest.mark.parametrize("one, other", OTHER.values(), ids=OTHER)
def test_it_keeps(one, other):
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize("word", ["sha256sum", "utf8", "ipv4", "E1101", "H264", "Grün3"])
def test_a_word_keeps_its_digits(word):
    assert fingerprint(f"{word}: line 7 of {word}") == f"{word}: line # of {word}"


def test_nothing_is_nothing():
    assert fingerprint("") == fingerprint("  ") == ""


def test_it_is_its_own_fingerprint():
    for one, other, _ in SAME.values():
        for error in (one, other):
            assert fingerprint(fingerprint(error)) == fingerprint(error)


def test_a_hostile_text_takes_no_time():
    """Of two that differ only far behind, nobody sees the difference either."""
    for part in (
        "'",
        "/",
        "a:",
        "0",
        "f0",
        '"',
        "-",
        "://",
        "~/",
        "a.b.c+",
        "a1",
        "a1234",
        "a12345",
    ):
        assert fingerprint(part * 100_000 + "x") == fingerprint(part * 100_000 + "y")
