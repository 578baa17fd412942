"""The dashboard as a person reads and uses it: what is painted, and nothing of what its scripts hold."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from playwright.sync_api import Locator, Page

from broker import Key
from tests.system.command import until

#: What is painted of the list: each row's key, and its state with the mark of a guess or a doubt.
_PAINTED = """() => Object.fromEntries([...document.querySelectorAll("#jobs-list [data-key]")]
    .map((row) => [row.dataset.key, row.dataset.state]))"""


class Dashboard:
    """One page of one browser."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url

    def open(self, path: str) -> None:
        """As somebody who typed the address."""
        self.page.goto(self.url + path)

    def await_live(self) -> None:
        """Until what is shown is what is: the stream is heard, the list is read, and there is a view to show it.

        A view's program comes by itself: it may be there long before the list, or come after it.
        """
        self.page.locator("html[data-live=yes] main > .view > *").first.wait_for(state="attached")

    def row(self, key: Key | str) -> Locator:
        """A row of the job list; only what is in sight is there."""
        return self.page.locator(f"#jobs-list [data-key={json.dumps(str(key))}]")

    def state(self, key: Key | str) -> str | None:
        """The state that a row shows, None where there is none."""
        return self.painted().get(str(key))

    def painted(self) -> dict[str, str]:
        """Key -> shown state of all rows that are in sight."""
        found: dict[str, str] = self.page.evaluate(_PAINTED)
        return found

    def until_state(self, key: Key | str, state: str | None, seconds: float = 60) -> None:
        """Wait until a row shows that state; None: until there is no such row."""
        until(lambda: self.state(key) == state, seconds)

    def choose(self, keys: Iterable[Key | str]) -> None:
        """Tick the boxes of these rows, once the list is one to choose from."""
        self.await_live()
        for key in keys:
            self.row(key).locator("input[type=checkbox]").click()

    def confirm(self) -> None:
        """Say yes to what is asked."""
        self.page.locator("#dialog-yes").click()

    def toast(self, words: str) -> Locator:
        """The remark that holds these words."""
        return self.page.locator("#toasts .toast", has_text=words)

    def text(self, selector: str) -> str:
        """What one element says, as it is read."""
        return self.page.locator(selector).inner_text()

    def listed(self, limit: int = 100_000) -> dict[str, str]:
        """What the API says of all jobs, in the words of the list."""
        found: list[dict[str, Any]] = self.page.request.get(
            f"{self.url}/v1/jobs?limit={limit}"
        ).json()
        return {one["key"]: _shown(one) for one in found}


def _shown(record: dict[str, Any]) -> str:
    mark = "~" if record["inferred"] else "?" if record["suspect"] else ""
    return f"{record['state']}{mark}"
