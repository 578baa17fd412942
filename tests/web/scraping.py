"""Prometheus, as far as tests need it: scrapes a page and reads it with Prometheus's own parser."""

from __future__ import annotations

import httpx
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.system.command import until

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


class Page:
    """A scrape: its families, and each sample by name and labels."""

    def __init__(self, answer):
        assert answer.status_code == 200, answer.text
        self.type = answer.headers["content-type"]
        is_open = self.type.startswith("application/openmetrics-text")
        parse = (
            openmetrics.text_string_to_metric_families
            if is_open
            else text_string_to_metric_families
        )
        self.families = {family.name: family for family in parse(answer.text)}
        self.samples = {}
        for family in self.families.values():
            for sample in family.samples:
                name = sample.name, frozenset(sample.labels.items())
                assert name not in self.samples, f"told twice: {name}"
                self.samples[name] = sample.value

    def get(self, name, **labels):
        return self.samples.get((name, frozenset(labels.items())))

    def all(self, name):
        """The values of a metric by those of its labels, without those that are 0."""
        return {
            tuple(value for _, value in sorted(labels)): value
            for (named, labels), value in self.samples.items()
            if named == name and value
        }


def scrape(url, accept="", **headers):
    given = {"accept": accept} if accept else {}
    return Page(httpx.get(f"{url}/metrics", headers=given | headers, trust_env=False, timeout=60))


def scrape_until(url, condition):
    """The first page of which the condition holds."""
    found = []
    until(lambda: found.append(scrape(url)) or condition(found[-1]))
    return found[-1]


def listed(url):
    """A page of a server that has listed all jobs."""
    return scrape_until(url, lambda page: page.get("broker_watch_listed"))
