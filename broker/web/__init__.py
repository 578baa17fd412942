"""The HTTP face: what programs and browsers ask, answered by the client ring alone."""
