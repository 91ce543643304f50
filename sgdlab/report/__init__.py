"""Texts and pages for people: tables, numbers and lists in words, JSON without NaN, a page of a status."""
