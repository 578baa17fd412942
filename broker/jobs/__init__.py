"""What can be said and asked of jobs: the reading half of the client, and every way to write an event."""
