"""`broker worker`: from its options to the supervisor and back."""

from __future__ import annotations

import pytest

from tests.system.command import until


def test_needs_an_engine(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    ran = command.process("worker", cwd=tmp_path)
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "no engine is known" in ran.err


def test_an_engine_that_is_not_known_is_named(command):
    ran = command.process("worker", "--engine", "nope")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "engine 'nope' is not known" in ran.err


def test_a_module_that_is_not_there_is_named(command):
    ran = command.process("worker", "--import", "no_such_module")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "cannot import no_such_module" in ran.err


@pytest.mark.parametrize("words", [["--slots", "0"], ["--slots", "0x10"], ["--slots", "2000"]])
def test_a_wrong_value_is_a_usage_error(command, words):
    assert command("worker", *words).code == 2


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "broker.toml"
    file.write_text('[engines.hash]\ntype = "process"\nargv = ["true"]\nslots = 2\n')
    return {"BROKER_CONFIG": str(file)}


def test_a_redis_that_is_down_is_6(command, config):
    ran = command.process("worker", env=config | {"REDIS_URL": "redis://127.0.0.1:1"})
    assert (ran.code, ran.err.count("\n")) == (6, 1)


def test_a_name_that_is_none(command, config):
    ran = command.process("worker", "--node", "Not A Name", env=config)
    assert (ran.code, ran.err.count("\n")) == (2, 1)


def test_runs_the_engines_of_the_configuration_until_told_to_stop(command, broker, config):
    with command.start("worker", "--node", "nas", env=config) as working:
        until(lambda: len(broker.workers()) == 2)
        assert [(seen.node, seen.engine) for seen in broker.workers()] == [("nas", "hash")] * 2
        working.terminate()
        working.communicate(timeout=60)
    assert working.returncode == 0
