"""The smallest configuration that still trains: for tests of whole runs."""

from configs import digits


def config(**changes):
    """The digits configuration, shortened; `changes` set entries, dots written as double underscores."""
    tiny = digits.get_config()
    tiny.epochs, tiny.evaluations, tiny.rate.warmup_epochs = 1.0, 3, 0.5
    tiny.batch_size, tiny.optimizer.learning_rate, tiny.optimizer.adam_learning_rate = 32, 0.05, 0.003
    tiny.network.kind, tiny.network.mlp.widths = "mlp", (8,)
    tiny.cluster.num_workers = 4
    tiny.target = 0.2
    for name, value in changes.items():
        entry = tiny
        *parents, last = name.split("__")
        for parent in parents:
            entry = entry[parent]
        with entry.unlocked(), entry.ignore_type():
            entry[last] = value
    return tiny
