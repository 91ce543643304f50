"""The answer to an operator: recommendation, sentences, tables, pictures, the page, and the next commands."""
