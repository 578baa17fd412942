"""The fleet: nodes, groups, and how it all stands."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
