"""Engines by name: given once, asked for by name, and every slip told."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from broker import Misconfigured
from tests.workers.fleet import ROOT
from workers import EngineSpec, engine, registry


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(registry, "_specs", {})


def test_a_decorated_function_is_an_engine_and_stays_a_function():
    @engine("double", slots=3)
    def double(ctx, payload):
        return payload * 2

    assert double(None, 2) == 4
    spec = registry.find("double")
    assert (spec.name, spec.slots) == ("double", 3)
    assert spec.engine.run(None, 4) == 8


def test_an_unknown_engine_is_an_error_that_names_the_known_ones():
    registry.register(EngineSpec("b", None))
    registry.register(EngineSpec("a", None))
    with pytest.raises(Misconfigured, match=r"'c' is not known here \(known: a, b\)"):
        registry.find("c")


def test_a_name_is_given_once():
    registry.register(EngineSpec("a", None, source="one"))
    with pytest.raises(Misconfigured, match="defined twice: by one and by two"):
        registry.register(EngineSpec("a", None, source="two"))


def test_a_module_loaded_anew_may_give_its_names_again():
    registry.register(EngineSpec("a", None, source="one"))
    registry.register(EngineSpec("a", None, slots=2, source="one"))
    assert registry.find("a").slots == 2


@pytest.mark.parametrize("name", ["", "x" * 65, "\ud800"])
def test_a_name_out_of_bounds_is_refused(name):
    with pytest.raises(Misconfigured, match="engine"):
        registry.register(EngineSpec(name, None))


@pytest.mark.parametrize("slots", [0, -1, 1025, True])
def test_slots_out_of_bounds_are_refused(slots):
    with pytest.raises(Misconfigured, match="slots"):
        registry.register(EngineSpec("a", None, slots=slots))


def test_the_configuration_file_gives_engines(tmp_path, monkeypatch):
    path = tmp_path / "broker.toml"
    path.write_text(
        '[engines.sum]\ntype = "process"\nargv = ["sha256sum", "--", "{path}"]\nslots = 2\n'
    )
    monkeypatch.setenv("BROKER_CONFIG", str(path))
    assert registry.load()["sum"].slots == 2


def test_a_type_that_is_not_known_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "broker.toml"
    path.write_text('[engines.sum]\ntype = "magic"\n')
    monkeypatch.setenv("BROKER_CONFIG", str(path))
    with pytest.raises(
        Misconfigured, match=r"engines.sum: type 'magic' is not known \(known: process\)"
    ):
        registry.load()


@pytest.mark.parametrize(
    "table,says",
    [
        ('type = "magic"', "engines.sum: type 'magic'"),
        ('type = "process"\nargv = ["p"]\nslotss = 2', "engines.sum: unknown setting slotss"),
        ('type = "process"', "engines.sum: argv must be"),
    ],
)
def test_what_is_wrong_in_the_file_is_told_with_its_name(tmp_path, monkeypatch, table, says):
    path = tmp_path / "broker.toml"
    path.write_text(f"[engines.sum]\n{table}\n")
    monkeypatch.setenv("BROKER_CONFIG", str(path))
    with pytest.raises(Misconfigured) as raised:
        registry.load()
    assert str(raised.value).startswith(f"{path}: {says}")


def test_a_name_that_no_command_line_can_hold_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "broker.toml"
    path.write_text('[engines."a\\u0000b"]\ntype = "process"\nargv = ["true"]\n')
    monkeypatch.setenv("BROKER_CONFIG", str(path))
    with pytest.raises(Misconfigured, match=r"engine 'a\\x00b'.*NUL") as raised:
        registry.load()
    assert "\0" not in str(raised.value)


def test_a_module_that_cannot_be_imported_is_named():
    with pytest.raises(Misconfigured, match="cannot import no_such_module: ModuleNotFoundError"):
        registry.load(["no_such_module"])


def test_a_package_of_the_users_cannot_shadow_ours(tmp_path):
    """The working directory comes last, and only for what is imported by name."""
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "__init__.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "mine.py").write_text("from workers import engine\nengine('mine')(print)\n")
    entry = str(ROOT / "workers" / "__main__.py")
    options = ["--namespace", "x", "--node", "n", "--engine", "other", "--import", "mine"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        [sys.executable, "-P", entry, *options],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "'other' is not known here (known: mine)" in found.stderr
    assert found.returncode == 78
