"""The command lines, and one folder for each paper whose tables and figures are reproduced."""
