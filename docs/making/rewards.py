"""The table of the page on stale rollouts: rewards by rule and policy, as stored."""

import csv
import itertools
import pathlib

from docs.making import tables

_STORED = pathlib.Path(__file__).parents[2] / "experiments" / "results" / "rollouts.rules.csv"

_MEAN, _LONGEST = "reward in the end, mean of the classes", "reward in the end of the class with the longest prompts"
_STALENESS = "mean staleness of the symbols, versions"
_TASKS = {"toy": "toy", "addition": "sums"}
_POLICIES = {
    "synchronous": "synchronous",
    "admission 4": "admission, η 4",
    "admission 16": "admission, η 16",
    "discard": "discard what is staler than 1",
    "discard, again at the back": "discard, try the prompt again",
}


def table() -> str:
    """Return the reward of each rule under each policy in the end, and that of the class with the longest prompts."""
    with _STORED.open(encoding="utf-8") as file:
        found = {(r["task"], r["policy"], r["rule"], r["quantity"]): float(r["ours"]) for r in csv.DictReader(file)}
    rules = list(dict.fromkeys(rule for _, _, rule, _ in found))
    rows = []
    for (task, name), (policy, title) in itertools.product(_TASKS.items(), _POLICIES.items()):
        staleness = f" ({found[task, policy, rules[0], _STALENESS]:.2g})" if task == "toy" else ""
        cases = [(task, policy, rule) for rule in rules]
        cells = [f"{found[*case, _MEAN]:.2f} ({found[*case, _LONGEST]:.2f})" for case in cases]
        rows.append([f"{name}: {title}{staleness}", *cells])
    return tables.table(["policy (mean staleness of the symbols)", *(f"`{rule}`" for rule in rules)], rows)
