"""UCI digits, a small conv net, and every method of the lab on a gamma cluster.

One run, about 3 seconds on one core after compilation:

    python -m experiments.main --config=configs/digits.py --config.method=gap_aware --workdir=runs/one

Sixteen methods that stand for all families at 8 and 32 workers, two seeds, about two minutes on two cores; all methods
at four sizes with three seeds take about five minutes:

    python -m experiments.compare --config=configs/digits.py --workdir=runs/digits
    python -m experiments.compare --methods=all --num_workers=4,8,16,32 --seeds=3 --workdir=runs/all

Gradients are small, 8 examples, so that synchronous SGD with 32 workers still makes 112 updates: with 32 examples it
would make 28, and diverge because the data are few and not because of what it does.

Expected: the single worker reaches 97.1 % test accuracy, and at 8 workers every method comes within 1.7 points of it.
At 32 workers, with fresh gradients, Rennala SGD (97.2 %), Cutoff SGD (96.9 %) and synchronous SGD (96.5 %) keep it;
without waiting, at six times the speed of synchronous SGD, Gap-Aware (96.7 %) and DANA-GA (96.5 %) do. NAG-ASGD
diverges for one of two seeds, bounded staleness (NAG too, and hardly less stale) for both; pull gossip ends at 89 %.
DANA-GA is the first at 95 % test accuracy: after 159 s of virtual time on average, synchronous SGD after 764 s.

A method is a protocol and a rule under one name. Each may be named by itself, and any protocol goes with any rule:

    python -m experiments.main --config.protocol.kind=bounded_staleness --config.rule.kind=staleness_aware

What a part takes stands below it: `config.protocol.timeout.at_least`, `config.rule.gap_aware.granularity`. How each
method's learning rate is set: as in the paper, all methods share the hyperparameters of the single worker, and none is
tuned for a number of workers, so that what differs is the method:

* `optimizer.learning_rate` is the rate of one gradient for all methods on SGD and NAG, and
  `optimizer.adam_learning_rate` for the three on Adam.
* `rate.of = "gradient"`: an update that averages n gradients takes n times that rate (Chen et al. 2016; Goyal et al.
  2017), so that n gradients move the parameters as far as n single steps do. With "update" the rate is that of an
  update, however many gradients it averages. For nodes without a server it is the rate of a node's own step, which
  moves the average of the N nodes by 1/N of that step.
* Every run warms up from the N-th part of its rate over `rate.warmup_epochs`, then decays by `rate.decay`; epochs are
  epochs of used gradients for all, so that equal work is compared.
* The gap is measured in steps of the largest rate, the one after warm-up.
"""

from ml_collections import ConfigDict, config_dict

from sgdlab.jobs import configuration


def get_config() -> ConfigDict:
    """Returns the configuration; every entry can be set by a flag, as in --config.cluster.num_workers=16."""
    config = ConfigDict()
    config.method = "gap_aware"  # a protocol and a rule; the methods are listed below
    config.seed = 0  # of parameters, batches, run-times and what the protocol draws
    config.epochs = 20.0  # of used gradients
    config.batch_size = 8  # examples per gradient
    config.replacement = False  # draw examples with replacement, instead of a permutation each epoch
    config.evaluations = 25  # on the test set during a run
    config.target = 0.95  # of accuracy, or of the task's own metric, on the test set, for the time to reach it
    config.evaluation_batch = 1000  # examples evaluated at once
    config.train_examples = 10_000  # at most, of the training set, for its loss and metric in the end
    config.test_examples = config_dict.placeholder(int)  # at most; None: all
    config.stream = False  # read examples from the host even if they fit the device
    config.chunk = 32  # gradients whose examples are sent to the device at once, where they are streamed
    config.readers = 0  # processes that decode, where examples are streamed; 0: threads
    config.average_decay = 0.98  # of the Polyak average; over a few hundred updates 0.9999 would hold the start
    config.mode = config_dict.placeholder(str)  # "event" or "wave"; None: the faster one
    config.lanes = config_dict.placeholder(str)  # "vmap" or "map": how a wave is computed; None: as suits the network
    config.memory = config_dict.placeholder(float)  # GiB that a run may take; None: what is free

    delays = {"base_seconds": 0.2, "base_shape": 2.0, "late_share": 0.0016, "late_seconds": 16.0}
    config.update(
        configuration.parts(
            {"cluster": "gamma", "network": "conv", "data": "digits", "predictor": "running_mean"},
            cluster={"gamma": {"heterogeneous": True}},
            network={"conv": {"channels": (16, 32)}, "mlp": {"widths": (32, 64)}},
            protocol={
                # A gradient takes 32 seconds on average: batch_size of them.
                "partial": {"push_at_least": 0.75, "push_timeout": 4.0, "pull_at_least": 0.75, "pull_delays": delays},
                "cutoff": {"window": 5},  # first updates, which wait for all; deep_markov needs its lag, 20
            },
        )
    )
    config.cluster.num_workers = 8  # N
    config.cluster.first_workers = config_dict.placeholder(int)  # only so many of them take part; None: all

    config.optimizer = ConfigDict()  # what rules share; each takes what it knows
    config.optimizer.learning_rate = 0.0125  # after warm-up; rate.of says whether of a gradient or an update
    config.optimizer.adam_learning_rate = 0.001  # the same, for rules on Adam
    config.optimizer.momentum = config_dict.placeholder(float)  # None: as the rule has it: 0.9; asgd: 0
    config.optimizer.nesterov = config_dict.placeholder(bool)  # None: as the rule has it: yes; asgd: no
    config.optimizer.weight_decay = 0.0005  # added to the gradient, before any penalty
    config.optimizer.clip_norm = config_dict.placeholder(float)  # of each gradient, by its worker; None: not clipped

    config.rate = ConfigDict()
    config.rate.of = "gradient"  # or "update"
    config.rate.warmup_epochs = config_dict.placeholder(float)  # from the N-th part of the rate; None: epochs / 4
    config.rate.decay = "cosine"  # or constant, step, linear, hold_linear, exponential
    config.rate.unit = "epochs"  # of steps, period, last and length: epochs of used gradients; or "updates"
    config.rate.steps = (10.0, 15.0)  # step: where the rate is multiplied by factor
    config.rate.period = 10.0  # exponential: length over which the rate is multiplied by factor
    config.rate.last = 10.0  # hold_linear: length over which the rate falls to final
    config.rate.length = config_dict.placeholder(float)  # of linear, hold_linear and cosine; None: that of the run
    config.rate.factor = 0.1  # step and exponential: what the rate is multiplied by
    config.rate.final = 0.0  # lowest share of the rate after warm-up to which it decays
    return config
