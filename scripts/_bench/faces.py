"""What HTTP costs beside the call in Python that it stands for: the list, and the page of metrics."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator

from books import fill
from latency import serving
from tools import Row, in_turns, ratios, timed

from broker import Broker

NAMESPACE = "faces"
FEW, MANY, MANY_QUICK = 1_000, 10_000, 2_000


def rows(url: str, *, turns: int, quick: bool) -> Iterator[list[Row]]:
    """Lists of a thousand and of ten thousand jobs, and a scrape at as many."""
    many = MANY_QUICK if quick else MANY
    with Broker.from_url(url, namespace=NAMESPACE, node="bench") as here:
        for origin, count in (("few", FEW), ("many", many)):
            fill(here.view, origin, count)
        with serving(url, NAMESPACE) as http:
            slices: dict[str, Callable[[int], float]] = {}
            for origin, count in (("few", FEW), ("many", many)):
                asked = f"{http}/v1/jobs?origin={origin}&limit={count}"
                slices[f"http_{origin}"] = lambda _, asked=asked: timed(lambda: _get(asked))
                slices[f"python_{origin}"] = lambda _, origin=origin: timed(
                    lambda: _list(here, origin)
                )
            slices["metrics"] = lambda _: timed(lambda: _get(f"{http}/metrics"))
            found = {
                name: [s * 1000 for s in took] for name, took in in_turns(slices, turns).items()
            }
    few_ratio = ratios(found["http_few"], found["python_few"])
    many_ratio = ratios(found["http_many"], found["python_many"])
    yield [
        Row("http_list_to_python_1e3", few_ratio, "x", "GET /v1/jobs of 10^3 to Broker.jobs"),
        Row("http_list_to_python_1e4", many_ratio, "x", "GET /v1/jobs of 10^4 to Broker.jobs"),
        Row("http_list_1e3_ms", found["http_few"], "ms", "GET /v1/jobs of 10^3, read as JSON"),
        Row("http_list_1e4_ms", found["http_many"], "ms", "GET /v1/jobs of 10^4, read as JSON"),
        Row("python_list_1e4_ms", found["python_many"], "ms", "Broker.jobs of 10^4, as JSON values"),
        Row("metrics_ms", found["metrics"], "ms", "GET /metrics at 10^4 jobs"),
    ]  # fmt: skip


def _get(url: str) -> None:
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - our own
        body = answer.read()
    if answer.headers.get_content_type() == "application/json":
        assert json.loads(body)


def _list(here: Broker, origin: str) -> None:
    assert [job.to_json() for job in here.jobs(origin=origin)]
