"""The dashboard's files, and its login page. What they show they ask of `/v1`: nothing of a fleet is in them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

from fastapi import APIRouter, FastAPI, HTTPException, Request, Response
from starlette.types import Receive, Scope, Send

router = APIRouter(include_in_schema=False)

_ROOT: Final = Path(__file__).parent / "static"

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}

#: Names below `/static/`; what is not here is not served, however it is spelled.
_FILES: Final = {
    path.relative_to(_ROOT).as_posix(): path
    for path in sorted(_ROOT.rglob("*"))
    if path.suffix in _TYPES
}


@router.get("/")
@router.get("/jobs")
@router.get("/jobs/{key:path}")
@router.get("/nodes")
@router.get("/failures")
@router.get("/groups")
@router.get("/streams")
def page(request: Request) -> Response:
    """The one page: which view it shows is its own affair."""
    return _file(request, "index.html")


@router.get("/login")
def login(request: Request) -> Response:
    """Where a browser gives the token."""
    return _file(request, "login.html")


@router.get("/static/{name:path}")
def static(request: Request, name: str) -> Response:
    """A script, a style or an icon."""
    if name not in _FILES:
        raise HTTPException(404, "there is no such file")
    return _file(request, name)


def add_missing(app: FastAPI) -> None:
    """Have a browser shown a page where there is none; a program is told by a problem document, as of any route."""
    told = app.router.default

    async def missing(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _shows_pages(request := Request(scope)):
            await _file(request, "index.html", 404)(scope, receive, send)
        else:
            await told(scope, receive, send)

    app.router.default = missing


def _shows_pages(request: Request) -> bool:
    is_read = request.method in ("GET", "HEAD") and not request.url.path.startswith("/v1/")
    return is_read and "text/html" in request.headers.get("accept", "")


def _file(request: Request, name: str, status: int = 200) -> Response:
    """Kept by browsers, but asked about each time: a page of yesterday's scripts and today's is none."""
    path = _FILES[name]
    content = path.read_bytes()
    tag = f'"{sha256(content).hexdigest()[:32]}"'
    headers = {"Cache-Control": "no-cache", "ETag": tag}
    known = {
        each.strip().removeprefix("W/")
        for each in request.headers.get("if-none-match", "").split(",")
    }
    if status == 200 and (tag in known or "*" in known):
        return Response(status_code=304, headers=headers)
    return Response(content, status, headers, _TYPES[path.suffix])
