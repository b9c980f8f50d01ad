"""Decoding: forward passes, the decoder, replay and latency."""
