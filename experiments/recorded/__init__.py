"""A data set of this project's own runs, with faults that are known: it is recorded, read and scored here."""
