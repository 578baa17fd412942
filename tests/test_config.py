"""Settings: which source wins, and that a wrong one is a single clear line."""

from __future__ import annotations

import pwd
import re
from pathlib import Path

import pytest

from broker import Misconfigured, engines, settings
from broker.rules.bounds import Bounds
from broker.rules.liveness import Budgets


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without a configuration."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_flag_beats_the_environment_which_beats_the_file(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nowhere / "broker.toml").write_text('[broker]\nnode = "of-file"\nnamespace = "of-file"\n')
    monkeypatch.setenv("BROKER_NODE", "of-environment")
    assert settings().node == "of-environment"
    assert settings(node="of-flag").node == "of-flag"
    assert settings().namespace == "of-file"
    assert settings().log_level == "info"


def test_a_secret_may_be_named_by_a_file(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (nowhere / "url").write_text("redis://:secret@redis:6379\n")
    monkeypatch.setenv("REDIS_URL_FILE", str(nowhere / "url"))
    assert settings().redis_url == "redis://:secret@redis:6379"
    monkeypatch.setenv("REDIS_URL", "redis://elsewhere")
    assert settings().redis_url == "redis://elsewhere"


def test_who_is_trusted_is_kept_beside_the_other_data_unless_it_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    assert settings().trust_dir == Path("/somewhere/fleet-broker/trust")
    monkeypatch.setenv("BROKER_TRUST_DIR", "/elsewhere")
    assert settings().trust_dir == Path("/elsewhere")


def test_an_empty_variable_is_one_that_is_not_set(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container engine passes `${X:-}` as an empty text."""
    (nowhere / "url").write_text("redis://redis:6379")
    monkeypatch.setenv("REDIS_URL_FILE", str(nowhere / "url"))
    for name in ("REDIS_URL", "BROKER_NODE", "BROKER_CONFIG", "BROKER_LOG_LEVEL"):
        monkeypatch.setenv(name, "")
    found = settings()
    assert (found.redis_url, found.log_level) == ("redis://redis:6379", "info")
    assert found.node
    assert engines() == {}


def test_how_much_is_kept_is_set_bound_by_bound(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nowhere / "broker.toml").write_text("[broker.bounds]\nlog_max = 7\ndone_max = 8\n")
    assert settings().bounds == Bounds(log_max=7, done_max=8)
    monkeypatch.setenv("BROKER_BOUNDS__LOG_MAX", "9")
    assert settings().bounds == Bounds(log_max=9, done_max=8)


@pytest.mark.parametrize(
    "bound,value,says",
    [
        ("LOG_MAX", "0", "setting bounds: log_max is a number of at least 1"),
        ("DONE_MS_MAX", "-5", "setting bounds: done_ms_max is a number of at least 1"),
        ("ANSWERS_MS_MIN", "-1", "setting bounds: answers_ms_min is a number of at least 0"),
        ("LOG_HARD_MAX", "99999", "setting bounds: log_hard_max is at least log_max"),
        ("PARKED_MAX", "many", "setting bounds.parked_max: must be a whole number, not 'many'"),
    ],
)
def test_a_bound_that_is_none_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, bound: str, value: str, says: str
) -> None:
    monkeypatch.setenv(f"BROKER_BOUNDS__{bound}", value)
    with pytest.raises(Misconfigured, match=f"^{says}$"):
        settings()


def test_an_engine_may_have_a_grace_of_its_own(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nowhere / "broker.toml").write_text("[broker.budgets.graces]\nllama = 30000\n")
    budgets = settings().budgets
    assert (budgets.grace_of("llama"), budgets.grace_of("echo")) == (30_000, budgets.grace_ms)
    monkeypatch.setenv("BROKER_BUDGETS__GRACES", '{"echo": 5}')
    assert settings().budgets == Budgets(graces={"echo": 5})


@pytest.mark.parametrize(
    "name,value,says",
    [
        ("GRACES", "echo=5", 'setting budgets: graces is JSON, {"engine": milliseconds}'),
        ("GRACES", '{"echo": -5}', "setting budgets: graces.echo is a number of at least 0"),
        ("GUESS_MS", "-5", "setting budgets: guess_ms is a number of at least 0"),
    ],
)
def test_a_budget_that_is_none_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(f"BROKER_BUDGETS__{name}", value)
    with pytest.raises(Misconfigured, match=f"^{re.escape(says)}$"):
        settings()


@pytest.mark.parametrize(
    "text,name",
    [
        ("[broker]\nnod = 'desk'", "nod"),
        ("[broker.bounds]\nlog_mx = 7", "bounds.log_mx"),
        ("[broker.budgets]\nguess = 7", "budgets.guess"),
    ],
)
def test_a_setting_that_nobody_knows_is_named(nowhere: Path, text: str, name: str) -> None:
    (nowhere / "broker.toml").write_text(text)
    with pytest.raises(Misconfigured, match=f"^broker.toml: setting {name}: [^\n]+$"):
        settings()


@pytest.mark.parametrize(
    "variable,value",
    [("BROKER_LOG_LEVEL", "quiet"), ("BROKER_BOUNDS__LOG_MAX", "0"), ("BROKER_NODE", "A B")],
)
def test_the_file_is_not_named_where_the_environment_is_wrong(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    (nowhere / "broker.toml").write_text(
        '[broker]\nlog_level = "loud"\nnode = "B A"\n[broker.bounds]\nlog_max = 0\n'
    )
    for name, right in (("LOG_LEVEL", "info"), ("BOUNDS__LOG_MAX", "9"), ("NODE", "a")):
        monkeypatch.setenv(f"BROKER_{name}", right)
    settings()
    monkeypatch.setenv(variable, value)
    with pytest.raises(Misconfigured, match=r"^setting "):
        settings()


def test_nor_where_a_flag_is(nowhere: Path) -> None:
    (nowhere / "broker.toml").write_text('[broker]\nredis_url = "redis://x"\nnode = "A B"\n')
    with pytest.raises(Misconfigured, match=r"^setting node: "):
        settings(node="B A")
    with pytest.raises(Misconfigured, match=r"^broker\.toml: setting node: .*'A B'"):
        settings()


def test_so_is_a_bound_that_nobody_knows_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BROKER_BOUNDS__LOG_MX", "7")
    with pytest.raises(Misconfigured, match=r"^setting bounds\.log_mx: "):
        settings()


@pytest.mark.parametrize(
    "variable,value,says",
    [
        ("BROKER_NODE", "A B", "setting node"),
        ("BROKER_NAMESPACE", "{x}", "setting namespace"),
        ("BROKER_LOG_LEVEL", "loud", "setting log_level"),
        ("BROKER_CONFIG", "nowhere.toml", "nowhere.toml"),
        ("REDIS_URL_FILE", "nowhere", "nowhere"),
    ],
)
def test_a_wrong_setting_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(Misconfigured, match=says):
        settings()


@pytest.mark.parametrize(
    "text,says",
    [
        ("[broker", "broker.toml"),
        ("broker = 1", "not a table"),
        ("[engines.x]\nslots = 2", "engines.x.type"),
        ('[engines.x]\ntype = "process"\nslots = 0', "engines.x.slots"),
    ],
)
def test_a_wrong_file_is_named_with_the_place(nowhere: Path, text: str, says: str) -> None:
    (nowhere / "broker.toml").write_text(text)
    read = engines if text.startswith("[engines") else settings
    with pytest.raises(Misconfigured, match=says):
        read()


def test_an_account_without_a_home_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under any user id: only what keeps files there must be told where."""

    def nobody(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert settings().trust_dir == Path("/nonexistent/fleet-broker/trust")
    monkeypatch.setenv("BROKER_TRUST_DIR", "/srv/trust")
    assert settings().trust_dir == Path("/srv/trust")


@pytest.mark.parametrize(
    "name,value,says",
    [
        ("LOG_FORMAT", "xml", "log_format: must be 'text' or 'json', not 'xml'"),
        ("RESULT_TTL_MS", "0", "result_ttl_ms: must be at least 1, not '0'"),
        ("ALLOW_VOLATILE", "perhaps", "allow_volatile: must be true or false, not 'perhaps'"),
        ("NODE", "A", "node: must match ^[a-z0-9][a-z0-9._-]{0,62}$, not 'A'"),
        ("BUDGETS__NOPE", "1", "budgets.nope: there is no such setting"),
        ("BUDGETS", "x", "budgets: in the environment it must be a JSON object"),
    ],
)
def test_a_setting_that_is_none_is_told_in_our_words(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(f"BROKER_{name}", value)
    with pytest.raises(Misconfigured, match=f"^setting {re.escape(says)}$"):
        settings()


@pytest.mark.parametrize(
    "text,says",
    [
        ("engines = 1", "[engines] is not a table"),
        ("[engines]\nx = 1", "engines.x: must be a table, not 1"),
        ("[engines.x]\nslots = 1", "engines.x.type: is missing"),
        ('[engines.x]\ntype = "process"\nslots = "many"', "must be a whole number, not 'many'"),
        ('[engines.x]\ntype = "process"\nslots = 2000', "engines.x.slots: must be at most 1024"),
    ],
)
def test_a_table_that_is_none_is_told_in_our_words(nowhere: Path, text: str, says: str) -> None:
    (nowhere / "broker.toml").write_text(text)
    with pytest.raises(Misconfigured, match=re.escape(says)):
        engines()
