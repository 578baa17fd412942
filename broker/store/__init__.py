"""What is remembered: the only package that talks to Redis."""
