"""Learned block sizes for diffusion speculative decoding."""

from __future__ import annotations

__version__ = "0.1.0"
