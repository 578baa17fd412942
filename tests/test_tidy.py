"""The house rules that a machine can hold: who may import whom, how large a file may be, what stands at its head."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from broker.store import scripts

ROOT = Path(__file__).parents[1]
PACKAGES = ("broker", "workers")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
SCRIPTS = sorted((ROOT / "broker/store/lua").rglob("*.lua"))
PAGES = sorted(
    path
    for path in (ROOT / "broker/web/static").rglob("*")
    if path.suffix in (".js", ".css", ".html")
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))

CLIENT = {
    "broker.aio", "broker.client", "broker.fleet", "broker.jobs", "broker.producer", "broker.readers",
    "broker.subscriptions", "broker.trust", "broker.waiting",
}  # fmt: skip

STORE = {"broker.errors", "broker.config", "broker.rules", "broker.store"}
FACE = {
    "broker", "broker.errors", "broker.text", "broker.logs", "broker.config", "broker.rules", *CLIENT
}  # fmt: skip

#: Ring -> what of ours it may import. The longest prefix that fits a module is its ring.
RINGS: dict[str, set[str]] = {
    "broker.errors": set(),
    "broker.text": set(),
    "broker.logs": {"broker.text"},
    "broker.rules": {"broker.errors", "broker.rules"},
    "broker.worded": set(),
    "broker.config": {"broker.errors", "broker.rules", "broker.worded"},
    "broker.store": STORE,
    "broker.roles": STORE | {"broker.roles"},
    **dict.fromkeys(CLIENT, STORE | CLIENT),
    "broker.testing": STORE | CLIENT | {"broker"},
    "broker.cli": FACE | {"broker.cli", "broker.worded"},
    "broker.cli.serve": FACE | {"broker.cli", "broker.web", "broker.roles", "broker.store"},
    "broker.cli.up": FACE | {"broker.cli", "broker.web", "broker.roles", "broker.store.server"},
    "broker.cli.children": {"broker.errors", "broker.cli", "broker.store.leash"},
    "broker.web": FACE | {"broker.web"},
    "broker": STORE | CLIENT | {"broker.logs"},
    "workers": {"broker", "workers"},
}  # fmt: skip

#: Foreign packages -> the only places that may import them.
FOREIGN = {
    "redis": ("broker.store", "workers"),
    "rq": ("broker.roles.handoff", "workers"),
    "fakeredis": ("broker.testing",),
    "pytest": ("broker.testing",),
    "typer": ("broker.cli",),
    "rich": ("broker.cli",),
    "textual": ("broker.cli",),
    "fastapi": ("broker.web",),
    "starlette": ("broker.web",),
    "uvicorn": ("broker.web",),
    "prometheus_client": ("broker.web",),
    "cryptography": (
        "broker.rules.certificate",
        "broker.rules.signed",
        "broker.store.identity",
        "broker.store.mint",
    ),
}

#: What the pure ring may use of the standard library: nothing that has a clock, chance or the world behind it.
PURE = {
    "__future__", "base64", "binascii", "collections", "collections.abc", "dataclasses", "datetime", "functools",
    "hashlib", "itertools", "json", "math", "operator", "re", "typing",
}  # fmt: skip

LINES_MAX = 300
#: A test module is one long list of statements: it may be longer.
TEST_LINES_MAX = 500


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def imports_of(path: Path) -> list[str]:
    """Every module that a file names in an import, late ones and those for type checkers included."""
    found = []
    for node in ast.walk(ast.parse(text_of(path))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = [name for name in submodules if is_module(name)]
            found += modules or [node.module or ""]
    return found


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def ring_of(name: str) -> str:
    return max((ring for ring in RINGS if within(name, ring)), key=len)


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_imports_point_inward(path: Path) -> None:
    name = name_of(path)
    allowed = RINGS[ring_of(name)]
    for target in imports_of(path):
        if target.split(".")[0] in PACKAGES:
            exact = target in allowed
            assert exact or any(within(target, ring) for ring in allowed - {"broker"}), (
                f"{name} imports {target}"
            )


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_foreign_packages_have_one_home(path: Path) -> None:
    name = name_of(path)
    for target in imports_of(path):
        homes = FOREIGN.get(target.split(".")[0])
        assert homes is None or any(within(name, home) for home in homes), (
            f"{name} imports {target}"
        )


@pytest.mark.parametrize("path", sorted((ROOT / "broker/rules").glob("*.py")), ids=name_of)
def test_the_rules_are_pure(path: Path) -> None:
    for target in imports_of(path):
        # Reading a certificate and checking a signature is as pure as `json`.
        if target.split(".")[0] == "cryptography":
            continue
        assert target in PURE or target.startswith("broker."), f"{name_of(path)} imports {target}"
        assert target.split(".")[0] in sys.stdlib_module_names | {"broker"}


@pytest.mark.parametrize(
    "path", SOURCES + SCRIPTS + PAGES + TESTS, ids=lambda path: str(path.relative_to(ROOT))
)
def test_files_stay_small(path: Path) -> None:
    lines_max = TEST_LINES_MAX if path in TESTS else LINES_MAX
    assert len(text_of(path).splitlines()) <= lines_max


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_modules_say_their_one_job(path: Path) -> None:
    assert ast.get_docstring(ast.parse(text_of(path))), f"{path} has no docstring"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_every_module_is_used(path: Path) -> None:
    """A module that nothing imports is dead, but for the doors: entry points and what is called by a dotted name."""
    name = name_of(path)
    doors = (
        "broker",
        "broker.testing",
        "broker.cli.__main__",
        "broker.rules.ledger",  # the model that the scripts are held against
        "workers",
        "workers.run",
        "workers.__main__",
    )
    if name in doors or path.name == "__init__.py":
        return
    elsewhere = [other for other in SOURCES if other != path]
    named = any(f'"{name}"' in text_of(other) or name in imports_of(other) for other in elsewhere)
    assert named, f"nothing imports {name}"


@pytest.mark.parametrize("name", scripts.names())
def test_scripts_carry_their_contract(name: str) -> None:
    source = scripts.source(name)
    assert source.text.startswith("--- ")
    assert source.sections == ("KEYS", "ARGV", "RETURNS", "WRITES")
    assert source.keys


def test_nothing_is_left_to_do() -> None:
    banned = re.compile(r"\b(?:TO" + "DO|FIX" + "ME|X" + "XX)\\b")
    for path in SOURCES + SCRIPTS + PAGES + TESTS:
        assert not banned.search(text_of(path)), f"{path} holds an unfinished note"


def test_only_the_loop_and_the_waiters_sleep() -> None:
    """A sleep elsewhere is a state waited for: wait on a condition with a deadline."""
    sleepers = {
        "broker.roles.loop",
        "broker.waiting.patience",
        "broker.producer",
        "broker.store.server",
    }
    for path in SOURCES:
        name = name_of(path)
        if within(name, "workers") or name in sleepers:
            continue
        assert "time.sleep(" not in text_of(path), f"{name} sleeps"


def test_the_docs_tell_every_rule() -> None:
    """The names are part of the API: what the merge can answer stands in its table."""
    deciding = ("report", "removal", "attempt", "merge", "ledger")
    said = "".join(text_of(ROOT / f"broker/rules/{name}.py") for name in deciding)
    rules = set(
        re.findall(r'(?:applied|refused|duplicate|buried|return)\(?\s*"([a-z_]{4,})"', said)
    )
    rules |= set(re.findall(r'_(?:change|offer|end)\(\w+, event,(?: scene,)? "(\w+)"', said))
    told = set(re.findall(r"`(\w+)`", text_of(ROOT / "docs/merge.md")))
    assert len(rules) > 25
    assert rules <= told


def test_the_docs_tell_every_rule_of_trust() -> None:
    """The same for what a peer's word is refused by."""
    names = ("certificate", "signed", "strict", "word", "trust", "vouch", "admission")
    homes = [f"broker/rules/{name}.py" for name in names]
    homes += [
        "broker/trust.py",
        *(f"broker/store/{name}.py" for name in ("trust", "peers", "identity")),
    ]
    said = "".join(text_of(ROOT / home) for home in homes)
    rules = set(re.findall(r'(?:Untrusted|Refused)\(\s*"([a-z_]+)"', said))
    told = set(re.findall(r"`(\w+)`", text_of(ROOT / "docs/trust.md")))
    assert len(rules) > 25
    assert rules <= told
