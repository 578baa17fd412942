"""The asyncio client: the same core, called on threads, with the same names."""
