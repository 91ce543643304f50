"""From finished runs to what a person reads: run directories, tables, pictures, the report."""
