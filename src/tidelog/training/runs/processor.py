"""What the operating system tells about the processor."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import jax

BFLOAT16 = ("avx512_bf16", "amx_bf16")  # flags of processors with products of bfloat16


@cache
def processor() -> str:
    """Return the name of the processor."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


@cache
def processor_flags() -> frozenset[str]:
    """Return the flags of what the processor can do; empty where the system does not tell."""
    return frozenset(_cpuinfo("flags").split())


def products_note(products: str) -> str | None:
    """Return a note if training with these products (`networks/product.py`) may be no faster here; else None."""
    if products != "bfloat16" or jax.default_backend() != "cpu" or any(flag in processor_flags() for flag in BFLOAT16):
        return None
    return (
        f"products = bfloat16, but no flag of this processor says that it multiplies bfloat16 ({', '.join(BFLOAT16)}): "
        "training may be slower than with float32. fix: compare both, or drop products (--products)"
    )


def _cpuinfo(field: str) -> str:
    """Return a field of the first processor; empty where the system does not tell."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(field)), "")
