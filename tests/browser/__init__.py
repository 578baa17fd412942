"""The dashboard in a real browser. A package, so that the browser ends with its last test: see `chromium`."""
