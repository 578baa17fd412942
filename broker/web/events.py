"""Ingress: events of programs that run jobs themselves."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
