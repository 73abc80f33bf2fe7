"""Measurements: `python -m minimoe bench WHAT`. Each claim of speed is a ratio within one run."""
