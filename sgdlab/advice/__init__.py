"""What `experiments.advise` is made of: from a recorded trace to a recommendation, its table, pictures and page."""
