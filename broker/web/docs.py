"""The API's own page at `/docs`, made in the browser from `/openapi.json`: it needs nothing but this server."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fastapi import APIRouter, Response

router = APIRouter(include_in_schema=False)

_PAGE: Final = Path(__file__).parent / "static" / "docs.html"


@router.get("/docs")
def docs() -> Response:
    """What can be asked here, for people."""
    return Response(_PAGE.read_bytes(), media_type="text/html; charset=utf-8")
