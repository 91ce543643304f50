"""What a live run survives: faults of workers, of messages, and of the server, on real processes."""
