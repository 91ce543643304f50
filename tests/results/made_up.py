"""Records of runs that never were: what a method says of itself, evaluations and a summary."""

import math

from sgdlab.results import table
from sgdlab.results.metric import Metric

METHODS = {
    "synchronous": ("Synchronous SGD", ["Rounds"], "nag_asgd"),
    "backup_workers": ("Backup workers", ["Rounds"], "nag_asgd"),
    "ringmaster": ("Ringmaster ASGD", ["Limits on staleness"], "nag_asgd"),
    "pull_gossip": ("Pull gossip", ["Decentralised"], "nag_asgd"),
    "asgd": ("ASGD", ["Limits on staleness", "Staleness corrections (plain SGD)"], "nag_asgd"),
    "nag_asgd": ("NAG-ASGD", ["Limits on staleness", "Penalties", "DANA"], "nag_asgd"),
    "staleness_aware": ("Staleness-Aware", ["Penalties"], "nag_asgd"),
    "gap_aware": ("Gap-Aware", ["Penalties"], "nag_asgd"),
    "dana": ("DANA", ["DANA"], "nag_asgd"),
    "delay_compensated": ("DC-ASGD", ["Staleness corrections (plain SGD)"], "nag_asgd"),
    "adam": ("Adam", ["Adam"], "adam"),
    "adam_gap_aware": ("Adam-GA", ["Adam"], "adam"),
}


def run(method="gap_aware", num_workers=4, seed=0, *, serial=False, summary=(), curve=(), **changed):
    """The records of a run; `curve` has (epoch, entries that differ) of each evaluation."""
    title, families, baseline = METHODS.get(method, (method, ["Others"], "nag_asgd"))
    record = {
        "kind": "run",
        "method": method,
        "title": f"Single worker ({title})" if serial else title,
        "protocol": method if method in ("synchronous", "backup_workers") else "asynchronous",
        "rule": method,
        "families": families,
        "rank": list(METHODS).index(method) if method in METHODS else len(METHODS),
        "baseline": baseline,
        "serial": serial,
        "never_waits": families[0] != "Rounds",
        "measures_gap": method.endswith("gap_aware"),
        "num_workers": num_workers,
        "seed": seed,
        "about": {"data": "digits, 32 a gradient", "cluster": "gamma", "learning rate": "0.05; cosine decay"},
        "target": 0.95,
    } | changed
    config = {"method": method, "seed": seed, "epochs": 20.0, "cluster": {"num_workers": num_workers, "kind": "gamma"}}
    evaluations = [_evaluation(epoch, **entries) for epoch, entries in curve]
    numbers = (
        dict.fromkeys(table.csv_fields(Metric.of(record)), 0.5) | {"diverged": False, "gradients": 880} | dict(summary)
    )
    made = {"version": "0.4.0", "jax": "0.10.2", "device": "cpu", "commit": "abc"}
    return [{"config": config, "made": made} | record, *evaluations, record | {"kind": "summary"} | numbers]


def _evaluation(epoch, **changed):
    entries = {"gradients": round(44 * epoch), "epoch": epoch, "seconds": 100.0 * epoch, "test_accuracy": 0.5}
    return (
        {"kind": "evaluation"} | entries | {"train_loss": 1.0, "test_loss": 1.0, "staleness": 3.0, "gap": 2.0} | changed
    )


def comparison(methods=tuple(METHODS), counts=(4, 8, 32), seeds=2):
    """Runs of many methods, with two single workers; NAG-ASGD is lost at the most workers, DANA there for one seed."""
    runs = [
        run(name, 1, seed, serial=True, **_numbers(name, 1, seed))
        for name in ("nag_asgd", "adam")
        for seed in range(seeds)
    ]
    for method in methods:
        for count in counts:
            runs += [run(method, count, seed, **_numbers(method, count, seed)) for seed in range(seeds)]
    return runs


def _numbers(method, count, seed):
    rank = list(METHODS).index(method)
    lost = count == 32 and (method == "nag_asgd" or (method == "dana" and seed == 0))
    served = method != "pull_gossip"
    waits = METHODS[method][1][0] == "Rounds"
    staleness = (0.0 if waits else count - 1.0) if served else None
    gap = (1.0 + (0.1 + 0.05 * rank) * staleness) if served else None
    end = 0.1 if lost else 0.977 - 0.0005 * count * (1 + rank % 4) - 0.004 * seed
    seconds = 28000 / count * (1.4 if waits else 1.0)
    curve = []
    for number in range(25):
        share = number / 24
        loss = 2.3 * math.exp(-4 * share) + 0.02 * (rank % 5 + 1) + (30 * share**2 if lost else 0.0)
        entries = {"seconds": seconds * share, "train_loss": loss if number else None, "test_loss": 1.1 * loss}
        entries |= {"staleness": staleness, "gap": None if gap is None else 1 + (gap - 1) * (1 - 0.3 * share)}
        curve.append((20 * share, entries | {"test_accuracy": 0.1 + (end - 0.1) * share}))
    summary = {"diverged": lost, "test_accuracy": end, "train_accuracy": min(end + 0.02, 1.0), "seconds": seconds}
    summary |= {"staleness": staleness, "gap": gap, "speedup": 1.4 if not waits else 1.0}
    summary |= {
        "seconds_to_target": None if end < 0.95 else 0.9 * seconds,
        "epochs_to_target": None if end < 0.95 else 18.0,
    }
    rate = "0.003" if METHODS[method][2] == "adam" else "0.05"
    law = "recorded compute times of trace-AR.parquet (750 steps x 4 workers)"
    about = {
        "data": "UCI digits, 1,437 examples, 32 a gradient",
        "network": "Conv net (channels 32, 64; batch norm no)",
        "length": "20 epochs of used gradients",
        "cluster": f"the first worker of {law}" if count == 1 else law,
        "learning rate": f"{rate}, times the gradients that an update averages; warm-up 5 epochs, cosine decay",
        "protocol": f"its own entry {rank}",
    }
    if method == "backup_workers":
        about["backups"] = "1 of the workers not waited for"
    return {"summary": summary, "curve": curve, "about": about}


def judged_by(runs, metric, of_accuracy, *, target=None):
    """The same runs, judged by a metric of which lower is better, `of_accuracy(accuracy)`; the accuracy is left out."""
    found = []
    for records in runs:
        changed = []
        for record in records:
            entries = {name.replace("accuracy", metric): value for name, value in record.items()}
            for name, value in record.items():
                if name.endswith("_accuracy") and value is not None:
                    entries[name.replace("accuracy", metric)] = of_accuracy(value)
            if target is None:
                entries |= {name: None for name in ("seconds_to_target", "epochs_to_target") if name in entries}
            if record["kind"] != "evaluation":
                entries |= {"metric": metric, "higher_is_better": False, "target": target}
            changed.append(entries)
        found.append(changed)
    return found


def perplexity(accuracy):
    """From 20, of an accuracy of 1, to 3000, of 0."""
    return 20 * 150 ** (1 - accuracy)


def bits_per_dimension(accuracy):
    """From 2.8 to 8."""
    return 2.8 + 5.2 * (1 - accuracy)
