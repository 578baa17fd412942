"""The dashboard's files, and its login page. What they show they ask of `/v1`: nothing of a fleet is in them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

from fastapi import APIRouter, HTTPException, Request, Response

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

#: Nothing but our own files: no script or style within a page, no frame around it.
_POLICY: Final = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}

_READ = ["GET", "HEAD"]


@router.api_route("/", methods=_READ)
@router.api_route("/jobs", methods=_READ)
@router.api_route("/jobs/{key:path}", methods=_READ)
@router.api_route("/nodes", methods=_READ)
@router.api_route("/failures", methods=_READ)
@router.api_route("/groups", methods=_READ)
@router.api_route("/streams", methods=_READ)
def page(request: Request) -> Response:
    """The one page: which view it shows is its own affair."""
    return _file(request, "index.html")


@router.api_route("/login", methods=_READ)
def login(request: Request) -> Response:
    """Where a browser gives the token."""
    return _file(request, "login.html")


@router.api_route("/static/{name:path}", methods=_READ)
def static(request: Request, name: str) -> Response:
    """A script, a style or an icon."""
    if name not in _FILES:
        raise HTTPException(404, "there is no such file")
    return _file(request, name)


def not_found(request: Request) -> Response | None:
    """The page that tells people that there is none here; None for a program, which gets a problem document."""
    if request.method not in _READ or "text/html" not in request.headers.get("accept", ""):
        return None
    return _file(request, "index.html", 404)


def _file(request: Request, name: str, status: int = 200) -> Response:
    """Kept by browsers, but asked about each time: a page of yesterday's scripts and today's is none."""
    path = _FILES[name]
    content = path.read_bytes()
    tag = f'"{sha256(content).hexdigest()[:32]}"'
    headers = _HEADERS | {"ETag": tag}
    known = {
        each.strip().removeprefix("W/")
        for each in request.headers.get("if-none-match", "").split(",")
    }
    if status == 200 and (tag in known or "*" in known):
        return Response(status_code=304, headers=headers)
    return Response(content, status, headers, _TYPES[path.suffix])
