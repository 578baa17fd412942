"""The API's own page at `/docs`, made in the browser from `/openapi.json`: it needs nothing but this server."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
