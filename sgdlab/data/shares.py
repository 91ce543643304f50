"""`label_shares`, examples divided among workers with labels in Dirichlet proportions, and the batches of a share."""

import dataclasses

import numpy as np

from sgdlab import arguments

_MOST_KEYS = 1 << 22
"""Numbers that are drawn at once, to bound memory."""


@dataclasses.dataclass(frozen=True, eq=False)
class Shares:
    """Holds which examples each worker has; every example has one worker.

    Attributes:
      examples: int32[n], those of worker 0, then those of worker 1, and so on; ascending within a worker.
      begins: int64[N + 1], where each worker's begin, and n.
    """

    examples: np.ndarray
    begins: np.ndarray

    @property
    def num_workers(self) -> int:
        """N."""
        return self.begins.size - 1

    @property
    def sizes(self) -> np.ndarray:
        """int64[N], number of examples of each worker."""
        return np.diff(self.begins)

    def of(self, worker: int) -> np.ndarray:
        """int32[.], the examples of a worker."""
        return self.examples[self.begins[worker] : self.begins[worker + 1]]

    def counts(self, labels: np.ndarray) -> np.ndarray:
        """int64[N, C], examples of each worker by label.

        Args:
          labels: int[n], of all examples, from 0 to C - 1.
        """
        classes = int(labels.max()) + 1
        worker = np.repeat(np.arange(self.num_workers), self.sizes)
        found = np.bincount(worker * classes + labels[self.examples], minlength=self.num_workers * classes)
        return found.reshape(self.num_workers, classes)


def label_shares(labels: np.ndarray, *, num_workers: int, alpha: float, seed: int) -> Shares:
    r"""Divides examples among workers, each with labels in proportions of its own.

    .. math:: q_w \sim \operatorname{Dirichlet}(\alpha p)

    p are the shares of the labels among all examples. A worker draws the labels of its examples from q_w, and for each
    an example that nobody has yet. Once a label has no examples left, its share is divided among the others. Large
    alpha: all workers have labels as the whole has them. Small alpha: each has one label, as far as there are enough.
    All workers have as many examples, up to one; those who want the last examples of a label get them by lot. Papers
    that name the concentration a of each of C labels, Dirichlet(a, ..., a), mean alpha = a C.

    Args:
      labels: int[n], from 0 to C - 1.
      num_workers: N, at most n.
      alpha: the concentration of all labels together, above 0.
      seed: of what is drawn.

    Returns:
      The shares.

    Source: Hsu, Qi and Brown 2019, "Measuring the effects of non-identical data distribution for federated visual
    classification"; verified against their group's code (google-research/federated, `dirichlet.py`): the prior, equal
    numbers of examples, and what becomes of a label that runs out. There the workers draw one example each in turn;
    here all draw at once, and examples that n / N leaves over are given out too.

    Example:
      >>> labels = np.repeat(np.arange(2, dtype=np.int32), 4)
      >>> shares = label_shares(labels, num_workers=2, alpha=1e-6, seed=0)
      >>> sorted(shares.examples.tolist()), shares.sizes
      ([0, 1, 2, 3, 4, 5, 6, 7], array([4, 4]))
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.size == 0 or not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
        raise ValueError(f"labels of shape {labels.shape} and dtype {labels.dtype} must be integers [n] from 0 on")
    arguments.whole("num_workers", num_workers, most=labels.size, why="the number of examples")
    arguments.real("alpha", alpha, above=0)
    arguments.whole("seed", seed, least=0)
    rng = np.random.default_rng(seed)
    counts = _counts(np.bincount(labels), num_workers, alpha, rng)
    # The examples of each label in random order are dealt to its workers; then all are sorted by worker.
    shuffled = rng.permutation(labels.size)
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    worker = np.repeat(np.tile(np.arange(num_workers), counts.shape[1]), counts.T.ravel())
    examples = by_label[np.lexsort((by_label, worker))].astype(np.int32)
    return Shares(examples, np.concatenate([[0], np.cumsum(counts.sum(axis=1))]))


def _counts(left: np.ndarray, num_workers: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """int64[N, C]: how many examples of each label each worker has; `left` [C] are all there are."""
    total, left = int(left.sum()), left.astype(np.int64)
    wanted = np.full(num_workers, total // num_workers)
    wanted[: total % num_workers] += 1
    logits = _log_gammas(alpha * left / total, num_workers, rng)
    counts = np.zeros(logits.shape, np.int64)
    while wanted.any():  # each time all get what they want, or a label runs out
        logits[:, left == 0] = -np.inf
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        drawn = rng.multinomial(wanted, shares / shares.sum(axis=1, keepdims=True))
        for label in np.flatnonzero(drawn.sum(axis=0) > left):
            drawn[:, label] = rng.multivariate_hypergeometric(drawn[:, label], left[label], method="marginals")
        counts += drawn
        left = left - drawn.sum(axis=0)
        wanted = wanted - drawn.sum(axis=1)
    return counts


def _log_gammas(shape: np.ndarray, rows: int, rng: np.random.Generator) -> np.ndarray:
    """float64[rows, C], logarithms of gamma-distributed numbers: those of small shapes are too small for a float."""
    found = np.log(rng.gamma(shape + 1, size=(rows, shape.size)))
    uniform = np.log1p(-rng.random((rows, shape.size)))
    with np.errstate(divide="ignore", invalid="ignore"):  # a label without examples
        return np.where(shape > 0, np.maximum(found + uniform / shape, -1e300), -np.inf)


def own_order(
    shares: Shares,
    worker: np.ndarray,
    number: np.ndarray,
    *,
    batch_size: int,
    seed: int,
    replacement: bool = False,
) -> np.ndarray:
    """Draws the examples of batches of workers that have examples of their own.

    Batch k of worker w depends on the seed, w and k alone. Without replacement every epoch of a worker is a new
    permutation of its examples, cut into batches; those that remain after its last whole batch are not used in it.

    Args:
      shares: the examples of the workers.
      worker: int[K], whose batches.
      number: int[K], which of its batches, from 0 on.
      batch_size: B, at most the number of examples of each worker.
      seed: seed of the permutations.
      replacement: whether every example of every batch is drawn independently.

    Returns:
      int32[K, B], indices of examples.

    Raises:
      ValueError: if a worker has less than a batch.

    Example:
      >>> shares = label_shares(np.zeros(8, int), num_workers=2, alpha=1.0, seed=0)
      >>> order = own_order(shares, np.array([1, 1, 0]), np.array([0, 1, 0]), batch_size=2, seed=0)
      >>> sorted(order[:2].ravel().tolist()) == shares.of(1).tolist(), set(order[2]) <= set(shares.of(0).tolist())
      (True, True)
    """
    worker, number = np.asarray(worker, np.int64), np.asarray(number, np.int64)
    least, why = int(shares.sizes.min()), f"the examples of one of {shares.num_workers:,} workers"
    arguments.whole("batch_size", batch_size, most=least, why=why)
    sizes = shares.sizes[worker]
    if replacement:
        place = np.arange(batch_size)
        keys = _hashed(seed, worker[:, None], number[:, None], place)
        chosen = (keys % sizes[:, None].astype(np.uint64)).astype(np.int64)
        return shares.examples[shares.begins[worker][:, None] + chosen]
    per_epoch = sizes // batch_size
    epochs, epoch_of = np.unique(np.stack([worker, number // per_epoch]), axis=1, return_inverse=True)
    epoch_of, within = epoch_of.ravel(), number % per_epoch
    found = np.empty((worker.size, batch_size), np.int32)
    longest = int(shares.sizes.max())
    step = max(1, _MOST_KEYS // longest)
    by_epoch = np.argsort(epoch_of, kind="stable")
    for begin in range(0, epochs.shape[1], step):
        of, epoch = epochs[:, begin : begin + step]
        place = np.arange(longest)
        keys = _hashed(seed, of[:, None], epoch[:, None], place)
        keys[place >= shares.sizes[of][:, None]] = np.iinfo(np.uint64).max  # behind the others
        permuted = np.argsort(keys, axis=1, kind="stable")
        first, last = np.searchsorted(epoch_of, [begin, begin + of.size], sorter=by_epoch)
        rows = by_epoch[first:last]
        places = within[rows][:, None] * batch_size + np.arange(batch_size)
        chosen = permuted[(epoch_of[rows] - begin)[:, None], places]
        found[rows] = shares.examples[shares.begins[worker[rows]][:, None] + chosen]
    return found


def _hashed(seed: int, *numbers: np.ndarray) -> np.ndarray:
    """uint64, numbers that look random, of whole numbers of at least 0; by the steps of SplitMix64."""
    state = np.array([seed], np.uint64)
    with np.errstate(over="ignore"):
        for number in numbers:
            state = _mixed(state + np.asarray(number).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    return state


def _mixed(state: np.ndarray) -> np.ndarray:
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
