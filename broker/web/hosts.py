"""By which names a server may be called, and which origins are its own."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import ip_address

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")
_ORIGIN = re.compile(r"(https?)://(.+)")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Door:
    """Where a server listens (an IP address and a port), and the names that its operator gave it, in lower case."""

    address: str
    port: int
    hosts: Collection[str] = ()

    @property
    def is_loopback(self) -> bool:
        """Whether nobody but this machine reaches it."""
        return ip_address(self.address).is_loopback

    @property
    def url(self) -> str:
        """How this machine reaches it."""
        address = ip_address(self.address)
        if address.is_unspecified:
            return f"http://{'127.0.0.1' if address.version == 4 else '[::1]'}:{self.port}"
        return f"http://{address if address.version == 4 else f'[{address}]'}:{self.port}"

    def knows(self, host: str) -> bool:
        """Whether this Host header means us.

        On loopback that is this machine with exactly our port. Elsewhere a port may have been mapped, and any address
        of the machine counts: no name was resolved, so no name server can have lied. The given names count always.
        """
        if not (found := _parsed(host)):
            return False
        name, port = found
        if name in self.hosts:
            return True
        if self.is_loopback:
            return (port or _PORTS["http"]) == self.port and _is_here(name)
        return name == "localhost" or _address(name) is not None


def is_own(origin: str, host: str, scheme: str) -> bool:
    """Whether an Origin header names the place that a request for this Host went to.

    It may also say https: then something in front of us ends the encryption, and no other page can have that name.
    """
    found, mine = _ORIGIN.fullmatch(origin.lower()), _parsed(host)
    if not found or not mine or found[1] not in (scheme, "https"):
        return False
    said, usual = _parsed(found[2]), _PORTS[found[1]]
    return said is not None and (said[0], said[1] or usual) == (mine[0], mine[1] or usual)


def _parsed(host: str) -> tuple[str, int] | None:
    """Name in lower case, and port, 0 where none is given."""
    found = _HOST.fullmatch(host.lower())
    return (found[1], int(found[2] or 0)) if found else None


def _address(name: str) -> str | None:
    """The address that a name is, if it is one, written as usual."""
    is_six = name.startswith("[")
    try:
        found = ip_address(name.strip("[]"))
    except ValueError:
        return None
    return str(found) if is_six == (found.version == 6) else None


def _is_here(name: str) -> bool:
    address = _address(name) or ""
    return name == "localhost" or address == "::1" or address.startswith("127.")
