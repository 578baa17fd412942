"""docs/failures.md promises nothing that no row of chaos does."""

from __future__ import annotations

import re
from pathlib import Path

from tests.chaos import damage, servers
from tests.chaos.rows import ROWS

PAGE = (Path(__file__).parents[2] / "docs/failures.md").read_text()


def test_each_row_that_the_page_names_is_one_and_each_of_redis_is_named():
    named = {
        name
        for names in re.findall(r"\(((?:`[a-z-]+`,? ?)+)[;)]", PAGE)
        for name in re.findall(r"[a-z-]+", names)
    }
    ours = {
        row.name
        for row in ROWS.values()
        if row.act.__module__ in (damage.__name__, servers.__name__)
    }
    assert len(ours) == 7
    assert ours <= named <= ROWS.keys()
