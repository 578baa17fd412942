"""Many readers that follow the list in one process, on one connection."""
