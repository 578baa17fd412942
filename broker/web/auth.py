"""The token, and the cookie that stands for it in a browser.

The cookie holds no token: it says until when it counts, signed by the token, so that a new token ends every login.
Nothing of it is kept here, and none of it is ever read from a url.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Callable, Iterable

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, SecretStr

from broker.errors import Invalid
from broker.web.body import read_json
from broker.web.problems import problem

#: How long a login lasts, in seconds.
SESSION_SECONDS = 7 * 86_400
#: Whoever comes with a wrong token waits so long for the answer, in seconds; nobody else does.
WRONG_SECONDS = 0.5
#: The largest body of a login, in bytes.
LOGIN_BYTES_MAX = 4_096

#: Served to everybody: how the process is, the login page and its files.
OPEN = frozenset({"/livez", "/readyz", "/version", "/login"})
OPEN_BELOW = "/static/"

router = APIRouter()


def needs_no_token(path: str) -> bool:
    """Whether a path is served to everybody."""
    return path in OPEN or path.startswith(OPEN_BELOW)


class Gate:
    """Knows the token, if there is one. `port` tells its cookie from that of another server on this host."""

    def __init__(
        self,
        token: SecretStr | None = None,
        port: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._token = token.get_secret_value().encode() if token else b""
        self._clock = clock
        self.cookie = f"broker_{port}"

    @property
    def is_open(self) -> bool:
        """Whether there is no token: everybody who reaches us may pass."""
        return not self._token

    def admits(self, headers: Iterable[tuple[bytes, bytes]]) -> bool | None:
        """Whether these headers bear the token, or a login by it; None where they bear neither."""
        if self.is_open:
            return True
        headers = list(headers)
        if given := [value for name, value in headers if name == b"authorization"]:
            scheme, _, token = given[0].partition(b" ")
            return len(given) == 1 and scheme.lower() == b"bearer" and self.fits(token.strip())
        cookies = [value.split(b";") for name, value in headers if name == b"cookie"]
        mine = self.cookie.encode() + b"="
        named = (part.strip() for parts in cookies for part in parts)
        logins = [part.removeprefix(mine) for part in named if part.startswith(mine)]
        # An ended login is no wrong token: its browser is only told to log in again.
        return True if any(map(self._counts, logins)) else None

    def fits(self, token: bytes) -> bool:
        """Whether it is the token; how long that takes tells nothing of it."""
        given, own = hashlib.sha256(token).digest(), hashlib.sha256(self._token).digest()
        return hmac.compare_digest(given, own) and not self.is_open

    def login(self) -> str:
        """A cookie's value that counts from now on."""
        until = str(int(self._clock()) + SESSION_SECONDS)
        return f"{until}.{self._sign(until)}"

    def _counts(self, login: bytes) -> bool:
        until, _, sign = login.decode("latin-1").partition(".")
        if not (until.isascii() and until.isdigit() and len(until) <= 15 and sign.isascii()):
            return False
        return hmac.compare_digest(sign, self._sign(until)) and int(until) > self._clock()

    def _sign(self, until: str) -> str:
        said = f"fleet-broker login until {until}"
        return hmac.digest(self._token, said.encode(), "sha256").hex()


def unauthorized(detail: str) -> Response:
    """The answer to whoever has no token, or a wrong one."""
    made = problem(401, "unauthorized", detail)
    made.headers["www-authenticate"] = "Bearer"
    return made


class Login(BaseModel):
    """What a login needs."""

    token: str


_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": Login.model_json_schema()}},
    }
}


@router.post("/login", status_code=204, openapi_extra=_BODY)
async def log_in(request: Request) -> Response:
    """Exchange the token for a cookie that lasts seven days. Without a token there is nothing to exchange."""
    gate: Gate = request.app.state.gate
    body, _ = await read_json(request, LOGIN_BYTES_MAX)
    token = body.get("token") if isinstance(body, dict) else None
    if not isinstance(token, str):
        raise Invalid("token: must be a text")
    answer = Response(status_code=204)
    if gate.is_open:
        return answer
    if not gate.fits(token.encode(errors="replace")):
        await asyncio.sleep(WRONG_SECONDS)
        return unauthorized("the token is wrong")
    _set(answer, request, gate.login(), SESSION_SECONDS)
    return answer


@router.post("/logout", status_code=204)
async def log_out(request: Request) -> Response:
    """Have the browser forget its cookie. A new token ends the logins of all of them."""
    answer = Response(status_code=204)
    _set(answer, request, "", 0)
    return answer


def _set(answer: Response, request: Request, value: str, seconds: int) -> None:
    # Behind something that ends the encryption only the page's own origin tells of it.
    is_secure = request.headers.get("origin", request.url.scheme).lower().startswith("https")
    gate: Gate = request.app.state.gate
    answer.set_cookie(
        gate.cookie, value, max_age=seconds, httponly=True, samesite="strict", secure=is_secure
    )
