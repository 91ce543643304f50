"""A trace is read as it grows: who is late now, since when, and what a changed protocol would gain from here."""
