"""The list as it changes: server-sent events."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
