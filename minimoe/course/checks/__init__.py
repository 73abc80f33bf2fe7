"""The checks of the exercises. `minimoe.course.check` loads them all; each file says of which."""
