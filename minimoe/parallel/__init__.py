"""Experts spread over ranks: dispatch, placement, processes, slow and dead ranks."""
