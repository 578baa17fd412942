"""What is known of jobs, and what a user may wish of them."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
