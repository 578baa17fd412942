"""What runs beside the store: one agent a module, each with a bounded `step()` that never sleeps."""
