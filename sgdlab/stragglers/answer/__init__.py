"""What the operator reads: recommendation, sentences, tables, pictures, the page, and the next commands."""
