"""Hot operations, one file each: a naive oracle that can be checked by eye, and fast paths."""
