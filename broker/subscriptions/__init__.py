"""Subscriptions: every event, in order, to a group's members; and the groups as an operator sees them."""
