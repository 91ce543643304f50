"""UCI digits, a small conv net, and every method of the lab on a gamma cluster.

One run, about 3 seconds on one core after compilation:

    python -m experiments.main --config=configs/digits.py --config.method=gap_aware --workdir=runs/one

All methods at 4, 8, 16 and 32 workers, three seeds, about 5 minutes on two cores:

    python -m experiments.compare --config=configs/digits.py --workdir=runs/digits

Expected: the single worker reaches 97.7 % test accuracy, and at 4 workers all methods come within 1.3 points of it. At
32 workers Gap-Aware (96.9 %), Adam-GA (96.5 %) and DANA-GA (96.4 %) stay closest; DANA falls to 90 %, NAG-ASGD diverges
for some seeds, and synchronous SGD with its rate times 32 diverges in the 28 updates that it is left with; so do the
other methods that average about as many gradients. Rennala SGD, whose updates average 4 fresh gradients, reaches
97.4 %, Ringmaster ASGD 96.2 %, and of the methods without a server push gossip 94 %.

How each method's learning rate is set. As in the paper, all methods share the hyperparameters of the single worker
and none is tuned for a number of workers, so that what differs is the method:

* `optimizer.learning_rate` is the rate of one gradient for all methods on SGD and NAG, and
  `optimizer.adam_learning_rate` for the three on Adam.
* The methods that average n gradients per update (`synchronous`, `all_reduce`, `backup_workers`, `softsync`, `rennala`;
  and `cutoff`, `timeout` and `partial`, whose n varies) multiply the rate by n (Chen et al. 2016; Goyal et al. 2017):
  n gradients then move the parameters as far as n single steps do. Not so the nodes of gossip and elastic averaging:
  each takes the rate of one gradient for its own steps, which move the nodes' average by the N-th part.
* Every run warms up from the N-th part of its rate over `schedule.warmup_epochs`, then decays by `schedule.decay`;
  epochs are epochs of used gradients for all, so that equal work is compared.
* The gap is measured in steps of the largest rate, the one after warm-up.
"""

from ml_collections import ConfigDict, config_dict

from sgdlab import machines


def get_config() -> ConfigDict:
    """Returns the configuration; every entry can be set by a flag, as in --config.cluster.num_workers=16."""
    config = ConfigDict()
    config.method = "gap_aware"
    config.seed = 0  # of the initial parameters, the batches and the run-times
    config.epochs = 20.0  # of used gradients
    config.batch_size = 32  # examples per gradient
    config.replacement = False  # draw examples with replacement, instead of a permutation each epoch
    config.dataset = "digits"
    config.evaluations = 25  # looks at the test set during a run
    config.target_accuracy = 0.95  # on the test set, for the time to reach it
    config.average_decay = 0.98  # of the Polyak average; over a few hundred updates 0.9999 would hold the start
    config.mode = config_dict.placeholder(str)  # "event" or "wave"; by default the faster one of the backend

    config.network = ConfigDict()
    config.network.kind = "conv"  # or "mlp"
    config.network.widths = (32, 64)  # channels of the convolutions, or hidden layers of the perceptron
    config.network.batch_norm = False  # of the conv net

    config.cluster, config.protocol, config.optimizer = _cluster(), _protocol(), _optimizer()

    config.schedule = ConfigDict()
    config.schedule.warmup_epochs = 5.0
    config.schedule.decay = "cosine"  # or constant, step, linear, exponential
    config.schedule.steps = (10.0, 15.0)  # step: the epochs
    config.schedule.factor = 0.1  # step and exponential: what the rate is multiplied by
    config.schedule.period = 10.0  # exponential: epochs for one factor
    return config


def _cluster() -> ConfigDict:
    """The machines and the messages between them."""
    cluster = ConfigDict()
    cluster.num_workers = 8
    cluster.kind = "gamma"  # or regimes (below), or recorded (a trace)
    cluster.trace = ""  # recorded: a file of steps x workers; sgdlab/cluster/recorded.py says in which forms
    cluster.regimes = machines.regime_entries(
        num_nodes=4, mean=1.057, std=0.393
    )  # cluster/regimes.py says what each is
    cluster.heterogeneous = True  # gamma: machines of unequal speed
    cluster.backups = 1  # of backup_workers: workers that an update does not wait for

    cluster.delays = ConfigDict()  # of servers' responses, for partial
    cluster.delays.base_seconds = 0.2  # the mean run-time is batch_size seconds
    cluster.delays.base_shape = 2.0
    cluster.delays.late_share = 0.0016
    cluster.delays.late_seconds = 16.0
    return cluster


def _protocol() -> ConfigDict:
    """Whom the methods wait for; sgdlab/waiting.py says which of them takes what."""
    protocol = ConfigDict()
    protocol.push_at_least = 0.75  # timeout, partial: of the workers, a share up to 1 (or how many, from 2 on)
    protocol.push_timeout = 4.0  # timeout, partial: seconds that an update waits longer
    protocol.interrupt = False  # timeout, ringmaster: late workers give their gradient up
    protocol.num_blocks = 4  # partial: servers; layerwise: layers
    protocol.pull_at_least = 0.75  # partial: of the blocks that a worker waits for, likewise
    protocol.pull_timeout = 0.0
    protocol.keep_newer = False
    protocol.reads = "start"  # layerwise: or "forward"
    protocol.pushes = "backward"  # layerwise: or "end"
    protocol.backward_share = 2 / 3
    protocol.gradients_per_update = 4  # softsync, rennala
    protocol.bound = 2  # bounded_staleness
    protocol.predictor = "running_mean"  # cutoff: or elfving, deadline, static, deep_markov, oracle
    protocol.predictor_window = 5  # running_mean, elfving, deadline: iterations that they look at
    protocol.deviations = 2.0  # deadline: median absolute deviations above the median
    protocol.cutoff = config_dict.placeholder(int)  # static: how many workers to wait for
    protocol.model = ""  # deep_markov: a directory that experiments.cutoff.train has left
    protocol.warm_up = 5  # cutoff: first updates, which wait for all; deep_markov needs its lag, 20
    protocol.objective = "throughput"  # cutoff: of the iteration; or "rate", of the run
    protocol.max_delay = config_dict.placeholder(int)  # ringmaster; by default the number of workers
    protocol.average_staleness = config_dict.placeholder(float)  # simulated_staleness; by default workers - 1
    protocol.ramp_epochs = 3.0
    protocol.period = 1  # peers: gradients from one averaging to the next
    protocol.rounds = False  # peers: synchronous rounds instead of a clock for each node
    protocol.beta = config_dict.placeholder(float)  # elastic_averaging; by default 0.8 / workers
    return protocol


def _optimizer() -> ConfigDict:
    """What the rules do; sgdlab/methods.py says which of them takes what."""
    optimizer = ConfigDict()
    optimizer.learning_rate = 0.05
    optimizer.momentum = 0.9  # of all methods on NAG or DANA; asgd has none
    optimizer.adam_learning_rate = 0.003
    optimizer.b1 = 0.9
    optimizer.b2 = 0.999
    optimizer.weight_decay = 0.0005
    optimizer.penalty = 0.1  # exponential_penalty: per update of staleness
    optimizer.variance_control = 0.04  # delay_compensated; 2.0 where adaptive
    optimizer.adaptive = False
    optimizer.granularity = "parameter"  # of the gap: or "layer", "global"
    return optimizer
