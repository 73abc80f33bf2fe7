"""What the notebooks use beside the engine: checks of exercises, one plotting style, sliders."""

from minimoe.course.check import check, solved

__all__ = ["check", "solved"]
