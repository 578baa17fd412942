"""The short form of every row of chaos: the long one is `scripts/chaos`."""

from __future__ import annotations

import random
import sys

import pytest

from tests.chaos.rows import ROWS
from tests.chaos.run import Run


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ROWS)
def test_what_must_hold_holds(name, tmp_path):
    seed = random.randrange(10**6)
    print(f"chaos {name}: seed {seed}")
    ROWS[name].act(Run(tmp_path, ROWS[name].short, seed))


def test_the_rows_leave_our_own_workers_as_they_are():
    """What lets a worker die at a point of its work is for workers in processes of their own."""
    assert "tests.chaos.dying_worker" not in sys.modules
