"""The rules, pure: values in, decisions out. No Redis, no clock, no I/O, no logging."""
