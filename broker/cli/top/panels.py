"""The overview of `broker top` in lines: what `broker.fleet.overview` found, in the words of the other commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from broker.cli.jobs import state_style
from broker.cli.output import ago, span
from broker.cli.top.panes import Line, line
from broker.readers.readers import BEHIND_SECONDS_MAX
from broker.rules.state import STATES

#: What an audit counts, each 0 in a healthy fleet.
_GAUGES = ("ghosts", "missing", "stuck", "drift")


def summary(found: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Two lines that stand above every page."""
    jobs = found["jobs"]
    counts: list[tuple[str, str]] = []
    for state in STATES:
        counts += [
            (f"{state} ", ""),
            (f"{jobs[state]:,}", state_style(state) or "head"),
            ("  ", ""),
        ]
    for name, sign in (("doubt", "?"), ("guess", "~")):
        if jobs[name]:
            counts += [(f"{jobs[name]:,}{sign}", "doubt"), ("  ", "")]
    parts = (_behind(found), _beating(nodes), _waiting(found), _rates(found), _lights(found))
    return [counts, [piece for part in parts for piece in part]]


def _behind(found: Mapping[str, Any]) -> Line:
    """All else is worth as much as the list that it was counted from."""
    age_ms = found["list_age_ms"]
    if age_ms is not None and age_ms <= BEHIND_SECONDS_MAX * 1000:
        return []
    how = "never read whole" if age_ms is None else f"{span(age_ms)} behind the logs"
    return [(f"list {how}  ", "doubt")]


def _beating(nodes: Sequence[Mapping[str, Any]]) -> Line:
    """How many nodes beat, and of how many where some fell silent that nobody took out."""
    up = sum(not node["suspect"] for node in nodes)
    silent = sum(node["suspect"] and not node["left"] and not node["flag"] for node in nodes)
    return [(f"nodes {up:,} of {up + silent:,}  ", "doubt") if silent else (f"nodes {up:,}  ", "")]


def _waiting(found: Mapping[str, Any]) -> Line:
    oldest = found["oldest_ready_ms"]
    since = f" for {span(oldest)}" if oldest is not None else ""
    return [(f"ready {found['ready']:,}{since}  ", "")]


def _rates(found: Mapping[str, Any]) -> Line:
    rates = found["rates"]
    share = rates["failed_share"]
    failed = [] if share is None else [(f"failed {share:.0%}  ", "bad" if share else "")]
    each = f"in {rates['submitted_per_min']:,}/min  out {rates['ended_per_min']:,}/min  "
    return [(each, ""), *failed]


def _lights(found: Mapping[str, Any]) -> Line:
    audit = found["audit"] or {}
    if wrong := [f"{name} {audit[name]:,}" for name in _GAUGES if audit.get(name)]:
        return [(", ".join(wrong), "bad")]
    if found["halted"]:
        return [(found["halted"][0], "doubt")]
    return [("ghosts 0", "good")] if audit.get("at") else [("not audited yet", "dim")]


def overview_lines(found: Mapping[str, Any]) -> list[Line]:
    """The page: jobs that wait, engines, failures, the audit, Redis, leaders, logs."""
    lines: list[Line] = []
    for title, part in (
        ("Waiting", _waiting_lines(found)),
        ("Engines", _engine_lines(found)),
        ("Failures, by what they have in common", _failure_lines(found)),
        ("Audit", _audit_lines(found)),
        ("Redis", _redis_lines(found)),
        ("Roles", _role_lines(found)),
        ("Logs", _log_lines(found)),
    ):
        lines += [line(title, "head"), *part, line()]
    lines += [line(f"cannot be read: {text}", "bad") for text in found["damaged"]]
    return lines


def _waiting_lines(found: Mapping[str, Any]) -> Iterator[Line]:
    oldest = found["oldest_ready_ms"]
    longest = "" if oldest is None else f", the longest for {span(oldest)}"
    yield line(
        f"  ready {found['ready']:,}{longest}; delayed {found['delayed']:,}; placed {found['placed']:,}"
    )


def _engine_lines(found: Mapping[str, Any]) -> Iterator[Line]:
    names = sorted({*found["wanted"], *found["occupied"], *found["slots"]})
    for name in names:
        wanted, busy, slots = (found[what].get(name, 0) for what in ("wanted", "occupied", "slots"))
        short = wanted > slots
        held = f"{busy:,} of {slots:,} slots occupied" if slots else "no node offers it"
        yield [
            (f"  {name}: ", ""),
            (f"{wanted:,} wanted", "doubt" if short else ""),
            (f", {held}", "doubt" if short and not slots else ""),
        ]
    if not names:
        yield line("  no workers, and no jobs for any", "dim")


def _failure_lines(found: Mapping[str, Any]) -> Iterator[Line]:
    for one in found["failures"]:
        newest = f"newest {ago(one['newest_at'])}: {one['newest_key']}"
        error = f"{one['error']}{'…' if one['cut'] else ''}"
        yield [(f"  {one['count']:,} x ", "bad"), (error, ""), (f"  ({newest})", "dim")]
    if not found["failures"]:
        yield line("  none", "dim")


def _audit_lines(found: Mapping[str, Any]) -> Iterator[Line]:
    audit = found["audit"]
    if not audit or not audit.get("at"):
        yield line("  nobody has audited yet; broker serve does", "dim")
        return
    each: list[tuple[str, str]] = [("  ", "")]
    for name in _GAUGES:
        count = audit.get(name, 0)
        each += [(f"{name} {count:,}", "bad" if count else "good"), ("  ", "")]
    yield [*each, (ago(audit["at"]), "dim")]


def _redis_lines(found: Mapping[str, Any]) -> Iterator[Line]:
    redis = found["redis"]
    room = f" of {_bytes(redis['used_max'])}" if redis["used_max"] else ""
    yield line(f"  {redis['name']} {redis['version']}, answers in {redis['answer_ms']:.1f} ms")
    yield line(f"  {_bytes(redis['used'])}{room} used, maxmemory-policy {redis['policy']}")
    keeps = f"appendonly yes, appendfsync {redis.get('fsync', 'unknown')}"
    yield line(
        f"  {keeps}" if redis["aof"] else "  appendonly no: a restart loses jobs",
        "" if redis["aof"] else "doubt",
    )
    if not redis["aof_ok"]:
        yield line("  the last write to the append-only file failed: is the disk full?", "bad")


def _role_lines(found: Mapping[str, Any]) -> Iterator[Line]:
    for role, said in found["leaders"].items():
        held = "led" if said["held"] else "led by nobody"
        yield line(f"  {role}: {held}, term {said['term']}", "" if said["held"] else "doubt")


def _log_lines(found: Mapping[str, Any]) -> Iterator[Line]:
    for one in found["origins"]:
        size = one["bytes"]
        parts = [
            f"  {one['origin']}: {_count(one['log'])} entries",
            "" if size is None else f"about {_bytes(size)}",
            f"live {_count(one['live'])}",
            f"done {_count(one['done'])}",
            f"floor {one['floor'] or '?'}",
        ]
        yield line(", ".join(filter(None, parts)), "bad" if one["damage"] else "")
    if not found["origins"]:
        yield line("  none", "dim")


def _count(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
