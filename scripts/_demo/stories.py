"""The stories that make job lists lie, told to the running fleet through `broker report`.

A story is a file of events, one a line. Beside it stands what each must be answered, and in its last line what it is
about and which jobs there are at its end. Every story has origins of its own: to each the store is empty.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet import HERE, Failed, command

from broker import Broker
from broker.rules.record import PROJECTION

FOLDER = HERE.parent / "stories"
REPORT_SECONDS_MAX = 60


@dataclass(frozen=True)
class Story:
    """What is told, what must be answered, what must be left."""

    name: str
    events: list[bytes]
    answers: list[dict[str, str]]
    about: str
    jobs: list[dict[str, Any]]


@dataclass(frozen=True)
class Told:
    """How a story went; `wrong` names the first thing that did not go as it must."""

    story: Story
    outcomes: Counter[str]
    wrong: str = ""

    @property
    def line(self) -> str:
        """For people."""
        counts = ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.items())
        verdict = "ok" if not self.wrong else f"WRONG ({self.wrong})"
        return f"  {self.story.name}: {self.story.about} {counts}: {verdict}"


def read_stories(folder: Path = FOLDER) -> list[Story]:
    """All stories of a folder, by name."""
    paths = [path for path in sorted(folder.glob("*.jsonl")) if path.suffixes == [".jsonl"]]
    return [_read(path) for path in paths]


def _read(path: Path) -> Story:
    expected = path.with_suffix(".expected.jsonl").read_text().splitlines()
    *answers, end = map(json.loads, expected)
    events = path.read_bytes().splitlines()
    return Story(path.stem, events, answers, end["story"], end["jobs"])


def tell(broker: Broker, stories: list[Story]) -> Iterator[Told]:
    """Tell them all, in one `broker report`, and look at the list."""
    given = b"".join(line + b"\n" for story in stories for line in story.events)
    ran = subprocess.run(
        command("report", "-"),
        input=given,
        capture_output=True,
        timeout=REPORT_SECONDS_MAX,
        check=False,
    )
    if ran.returncode:
        raise Failed(
            f"broker report: exit code {ran.returncode}: {ran.stderr.decode(errors='replace').strip()}"
        )
    outcomes = [json.loads(line) for line in ran.stdout.splitlines()]
    for story in stories:
        count = len(story.events)
        own, outcomes = outcomes[:count], outcomes[count:]
        yield Told(story, Counter(told["outcome"] for told in own), _wrong(broker, story, own))


def _wrong(broker: Broker, story: Story, outcomes: list[dict[str, str]]) -> str:
    answers = [{name: told[name] for name in ("outcome", "rule")} for told in outcomes]
    for number, (answer, expected) in enumerate(zip(answers, story.answers, strict=True), 1):
        if answer != expected:
            return f"line {number}: {answer['outcome']} {answer['rule']}"
    origins = sorted({told["key"].partition("/")[0] for told in outcomes})
    listed = [listed.to_json() for origin in origins for listed in broker.jobs(origin=origin)]
    found = {job["key"]: job for job in listed}
    if set(found) != {job["key"] for job in story.jobs}:
        return f"the list holds {', '.join(sorted(found)) or 'nothing'}"
    for job in story.jobs:
        for name, value in job.items():
            if found[job["key"]][name] != value:
                return f"{job['key']}: {name} is {found[job['key']][name]!r}"
    return ""


def lies(broker: Broker) -> list[str]:
    """Jobs of any origin that the list shows otherwise than the log tells; none is expected."""
    found = []
    for origin in broker.origins():
        listed = {listed.key: listed.record for listed in broker.jobs(origin=origin)}
        logged = broker.replay(origin)
        for key in sorted(listed.keys() | logged.keys()):
            shown, told = (
                record and [getattr(record, name) for name in ("rev", *PROJECTION)]
                for record in (listed.get(key), logged.get(key))
            )
            if shown != told:
                found.append(f"{key}: the list does not show what the log tells")
    return found
