"""The checks of the exercises, one file per notebook. `minimoe.course.check` loads them all."""
