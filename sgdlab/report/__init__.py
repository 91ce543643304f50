"""What people read, whatever it is about: tables, numbers and lists in words, JSON without NaN, a page of a status."""
