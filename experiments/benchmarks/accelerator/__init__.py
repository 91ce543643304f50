"""One command for an accelerator: whether it computes what a CPU does, and how fast, in one file and on one page."""
