"""WikiText-103 and Transformer-XL, as Barkai et al. 2020 train it with Adam on 4 and 8 asynchronous workers.

    sgdlab data wikitext103
    sgdlab train --config=configs/wikitext103_transformer_xl.py --workdir=runs/transformer_xl
    sgdlab train --config=configs/wikitext103_transformer_xl.py:tiny --workdir=runs/tiny

Source: Barkai et al. 2020, appendix C.4 (hyperparameters), C.3 (cluster) and section 6.3. A run is 200,000 gradients,
18.6 epochs of 10,752.

Expected test perplexity (Table 2; lower is better): 24.25 with a single worker (`--config.method=adam
--config.cluster.num_workers=1`), and

| workers | Adam | Adam-SA | Adam-GA |
|---|---|---|---|
| 4 | 1644.76 | 1210.80 | 26.48 |
| 8 | 1603.01 | 1129.90 | 28.70 |

Memory (computed, for event mode; activations come on top): 151,107,538 parameters are 604 MB. With 4 workers
adam_gap_aware holds 11 copies of them, 6.6 GB, and what the workers remember takes 1.0 GB.

Not in the paper, which took the network from the repository of its authors (Dai et al. 2019), and assumed here: the
sizes of the base model there (16 layers of width 410, 10 heads of 41, inner width 2100, segments and memory of 150
tokens, adaptive softmax with tied embeddings and cutoffs at 20,000, 40,000 and 200,000; 151,107,538 parameters) and its
initial values; no weight decay; that the warm-up of 5 epochs, "for all algorithms", is of epochs of the text: 53,760
gradients. The batch is 64 texts read side by side; each worker has 64 of its own, and its own memory of them. Tests use
the memory of 150 tokens; the published evaluation of the repository uses 640.
"""

from ml_collections import ConfigDict

from sgdlab import arguments
from sgdlab.runs import configuration

GRADIENTS = 200_000
"""K, the steps of a run."""
_ADAMS = ("adam", "adam_staleness_aware", "adam_gap_aware")
_PER_EPOCH = (103_227_021 - 1) // 150 // 64  # tokens, by segments of 150, by batches of 64


def get_config(variant: str = "paper") -> ConfigDict:
    """Returns the configuration; what is not set here is as in `sgdlab/runs/configuration.py`.

    Args:
      variant: "paper", or "tiny" for seconds on data at hand.

    Raises:
      ValueError: if there is no such variant.
    """
    arguments.one_of("variant", variant, configuration.VARIANTS)
    config = configuration.entries(
        {"cluster": "gamma", "network": "transformer_xl", "data": "wikitext103"},
        network={"transformer_xl": {"dropout": 0.1, "memory": 150, "cutoffs": (20_000, 40_000, 200_000)}},
        data={"wikitext103": {"segment": 150}},
        rule={name: {"b1": 0.9, "b2": 0.999, "eps": 1e-8} for name in _ADAMS},
    )
    config.method = "adam_gap_aware"
    config.cluster.num_workers = 4
    config.cluster.gamma.heterogeneous = False
    config.epochs = GRADIENTS / _PER_EPOCH
    config.batch_size = 64
    config.evaluations = 200
    # Segments of the text to train on, for its loss in the end; of the test set, all.
    config.train_examples = 2_000

    config.optimizer.adam_learning_rate = 0.00025
    config.optimizer.weight_decay = 0.0
    config.optimizer.clip_norm = 0.25

    # From the rate to 0 over the whole run.
    config.rate.warmup_epochs = 5.0
    config.rate.decay = "cosine"
    config.rate.final = 0.0
    if variant == "tiny":
        _tiny(config)
    return config


def _tiny(config: ConfigDict) -> None:
    """Two layers of width 32 on bytes of Python's standard library, 4 workers, 64 gradients."""
    network = config.network.transformer_xl
    network.layers, network.width, network.heads, network.head_width, network.inner = 2, 32, 2, 16, 64
    network.memory, network.cutoffs = 32, ()
    config.data.kind, config.data.stdlib_text.segment, config.data.stdlib_text.max_bytes = "stdlib_text", 32, 16_385
    config.batch_size, config.evaluations, config.train_examples, config.test_examples = 8, 4, 64, 64
    configuration.shorten(config, 1.0)
