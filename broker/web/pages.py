"""The dashboard's files, and its login."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
