"""Whether this process lives, and whether it can serve."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
