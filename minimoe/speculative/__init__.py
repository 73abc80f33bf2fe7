"""Speculative decoding: guess several tokens, check them in one pass, keep the text exact."""
