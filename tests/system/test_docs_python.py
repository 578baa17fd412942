"""What docs/python.md shows is what happens: its programs run in their order on a real fleet, and say what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.machine import Machine

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
#: Each program, and what it says.
PROGRAMS = re.findall(
    r"^```python\n(.*?)^```$(?:\n^```text\n(.*?)^```$)?", PAGE, re.MULTILINE | re.DOTALL
)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine whose `up` runs the engines of the page."""
    [engines] = [program for program, _ in PROGRAMS if program.startswith("# my_engines.py")]
    (tmp_path / "my_engines.py").write_text(engines)
    made = Machine(tmp_path)
    try:
        yield made
    finally:
        made.close()


def run(machine: Machine, *words: str) -> str:
    ran = subprocess.run(
        [sys.executable, *words],
        cwd=machine.home,
        env=machine.environment(BROKER_NODE="desk"),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_programs_of_the_page_say_what_it_says(machine: Machine) -> None:
    machine.up("--import", "my_engines")
    said = [(program, output) for program, output in PROGRAMS if not program.startswith("# ")]
    assert len(said) == 8
    for program, output in said:
        assert run(machine, "-c", program) == output, program


def test_the_tests_of_the_page_pass(machine: Machine) -> None:
    [tests] = [program for program, _ in PROGRAMS if program.startswith("# test_thumbnails.py")]
    (machine.home / "test_thumbnails.py").write_text(tests)
    assert "2 passed" in run(machine, "-m", "pytest", "-q", "-p", "no:cacheprovider")
