"""Settings: flag > environment > `broker.toml` > default, each read in one place.

A flag is given to `Settings(...)` by whoever parsed it. The environment uses the prefix `BROKER_`, but for
`REDIS_URL`; a secret may also be named by a file (`REDIS_URL_FILE`). Of `broker.toml` the table `[broker]` holds
settings and `[engines.<name>]` what our workers can run.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from broker.errors import Misconfigured
from broker.rules.bounds import Bounds
from broker.rules.key import NAME
from broker.rules.liveness import Budgets
from broker.worded import worded

DEFAULT_URL = "redis://127.0.0.1:6379"

PORT_MAX = 65_535
_LISTEN = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
#: It travels in a header, and is too long to be guessed.
_TOKEN = re.compile(r"[\x21-\x7e]{16,1024}")


def host_node() -> str:
    """This host's name as a valid node name."""
    name = re.sub(r"[^a-z0-9._-]", "-", socket.gethostname().lower()).strip("._-")[:63]
    return name if NAME.match(name) else "node"


def data_dir() -> Path:
    """Where `broker up` keeps its data: `$XDG_DATA_HOME/fleet-broker`.

    An account without a home has no such folder: whoever needs one is told so by the system, and nobody else.
    """
    if base := os.environ.get("XDG_DATA_HOME"):
        return Path(base) / "fleet-broker"
    try:
        return Path.home() / ".local" / "share" / "fleet-broker"
    except RuntimeError:
        return Path("/nonexistent/fleet-broker")


class Settings(BaseSettings):
    """What an operator can set. Build one with `settings()`, which says in one line what is wrong."""

    model_config = SettingsConfigDict(
        env_prefix="BROKER_",
        env_ignore_empty=True,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
    )

    redis_url: str | None = Field(None, validation_alias="REDIS_URL")
    namespace: str = Field("broker", pattern=r"^[^{}\s]+$")
    node: str = Field(default_factory=host_node, pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    trust_dir: Path = Field(default_factory=lambda: data_dir() / "trust")
    #: Whether the roles may start on a Redis that forgets: one that evicts, or keeps no append-only file.
    allow_volatile: bool = False
    #: Where `serve` and `up` answer HTTP: HOST:PORT, or `off`.
    listen: str = "127.0.0.1:7070"
    #: Names by which others call us over HTTP, beside our own address: a request for any other host is refused.
    hosts: Annotated[tuple[str, ...], NoDecode] = ()
    #: What programs and people must know to use HTTP; without one, only this machine may.
    token: SecretStr | None = None
    result_ttl_ms: int = Field(86_400_000, ge=1)
    budgets: Budgets = Budgets()
    bounds: Bounds = Bounds()

    @field_validator("listen")
    @classmethod
    def _read_listen(cls, listen: str) -> str:
        listen = listen.strip()
        if listen.lower() == "off":
            return "off"
        found = _LISTEN.fullmatch(listen)
        if not found or int(found[1]) > PORT_MAX:
            raise ValueError(
                f"must be HOST:PORT (an IPv6 address in brackets, a port up to {PORT_MAX}) or off, not {listen!r:.60}"
            )
        return listen

    @field_validator("hosts", mode="before")
    @classmethod
    def _read_hosts(cls, hosts: Any) -> Any:
        """The environment gives them with commas between: `BROKER_HOSTS=fleet.example,broker`."""
        if isinstance(hosts, str):
            hosts = [name for name in re.split(r"[\s,]+", hosts) if name]
        for name in hosts if isinstance(hosts, list | tuple) else ():
            if not (isinstance(name, str) and _HOST.fullmatch(name)):
                raise ValueError(f"must be host names without a port, not {name!r:.60}")
        return tuple(map(str.lower, hosts)) if isinstance(hosts, list | tuple) else hosts

    @field_validator("token")
    @classmethod
    def _check_token(cls, token: SecretStr | None) -> SecretStr | None:
        if token is not None and not _TOKEN.fullmatch(token.get_secret_value()):
            raise ValueError("must be 16 to 1,024 visible ASCII characters (openssl rand -hex 24)")
        return token

    @field_validator("budgets", mode="before")
    @classmethod
    def _read_graces(cls, budgets: Any) -> Any:
        """The environment gives a table as JSON: `BROKER_BUDGETS__GRACES='{"ollama": 30000}'`."""
        if not (isinstance(budgets, dict) and isinstance(graces := budgets.get("graces"), str)):
            return budgets
        try:
            return budgets | {"graces": json.loads(graces)}
        except ValueError:
            raise ValueError('graces is JSON, {"engine": milliseconds}') from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del (
            dotenv_settings,
            file_secret_settings,
        )  # a `.env` or a secrets folder would be a second way
        secrets = InitSettingsSource(settings_cls, _secret_files())
        table = InitSettingsSource(settings_cls, _broker_table())
        return init_settings, env_settings, secrets, table


#: Settings whose values are told to nobody.
_SECRETS = frozenset({"REDIS_URL", "redis_url", "token"})


def _secret_files() -> dict[str, Any]:
    """A secret named by a file, as container engines mount them."""
    named = {"REDIS_URL": "REDIS_URL_FILE", "token": "BROKER_TOKEN_FILE"}
    paths = {name: os.environ.get(variable) for name, variable in named.items()}
    return {name: _read(Path(path)).strip() for name, path in paths.items() if path}


def _broker_table() -> dict[str, Any]:
    table = _config().get("broker", {})
    if not isinstance(table, dict):
        raise Misconfigured(f"{config_path()}: [broker] is not a table")
    return {"REDIS_URL" if name == "redis_url" else name: value for name, value in table.items()}


def settings(**flags: Any) -> Settings:
    """The settings in force; a flag that is None was not given. Raises Misconfigured, naming the first wrong one."""
    given = {name: value for name, value in flags.items() if value is not None}
    if "redis_url" in given:
        given["REDIS_URL"] = given.pop("redis_url")
    try:
        return Settings(**given)
    except ValidationError as wrong:
        first = wrong.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"])) or "settings"
        if name in _SECRETS:
            first = {**first, "input": None}  # of these nothing is ever shown
        where = f"{config_path()}: " if _is_of_file(first["loc"], given) else ""
        raise Misconfigured(f"{where}setting {name}: {worded(first)}") from None
    except SettingsError as wrong:
        found = re.search(r'field "(\w+)"', str(wrong))
        name = found[1] if found else "settings"
        raise Misconfigured(
            f"setting {name}: in the environment it must be a JSON object"
        ) from None


def _is_of_file(place: Sequence[int | str], given: Mapping[str, Any]) -> bool:
    """Whether the configuration file alone says what stands at this place of the settings."""
    found: Any = _broker_table()
    for name in place:
        if not (isinstance(found, dict) and name in found):
            return False
        found = found[name]
    setting = str(place[0]).upper() if place else ""
    prefix = "" if setting == "REDIS_URL" else "BROKER_"
    named = re.compile(f"{prefix}{re.escape(setting)}(_FILE|__.*)?", re.IGNORECASE)
    is_set = any(value and named.fullmatch(name) for name, value in os.environ.items())
    return bool(place) and place[0] not in given and not is_set


class Engine(BaseModel):
    """One table `[engines.<name>]`: an engine by configuration. Its own fields are read by the engine's type."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: str
    slots: int = Field(1, ge=1, le=1024)


def engines() -> dict[str, Engine]:
    """The engines of the configuration file, by name."""
    tables = _config().get("engines", {})
    if not isinstance(tables, dict):
        raise Misconfigured(f"{config_path()}: [engines] is not a table")
    made = {}
    for name, table in tables.items():
        try:
            made[name] = Engine.model_validate(table)
        except ValidationError as wrong:
            first = wrong.errors(include_url=False)[0]
            where = ".".join(map(str, ("engines", name, *first["loc"])))
            raise Misconfigured(f"{config_path()}: {where}: {worded(first)}") from None
    return made


def config_path() -> Path:
    """`BROKER_CONFIG`, else `./broker.toml`."""
    return Path(os.environ.get("BROKER_CONFIG") or "broker.toml")


def _config() -> dict[str, Any]:
    path = config_path()
    if not path.exists() and not os.environ.get("BROKER_CONFIG"):
        return {}
    try:
        return tomllib.loads(_read(path))
    except tomllib.TOMLDecodeError as wrong:
        raise Misconfigured(f"{path}: {wrong}") from None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as wrong:
        raise Misconfigured(f"{path}: {wrong}") from None


def running_up() -> dict[str, Any] | None:
    """What a running `broker up` says of itself (pid, url, ...), None where none runs.

    Its file is trusted only while it holds its lock: a killed one leaves the file behind, never the lock.
    """
    folder = data_dir()
    try:
        with (folder / "up.lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found = json.loads((folder / "up.json").read_text())
                return found if isinstance(found, dict) and "url" in found else None
    except (OSError, ValueError):
        return None
    return None
