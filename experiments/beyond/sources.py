"""The papers whose claims are checked here."""

from experiments.papers import Paper

RINGLEADER = Paper(
    "Maranjyan and Richtarik 2025",
    "Ringleader ASGD: the first asynchronous SGD with optimal time complexity under data heterogeneity",
    "arXiv:2509.22860",
    {
        "Toy": "Squared norm of the gradient by time, 100 clients with labels of their own",
        "Disagreeing": "Squared norm of the gradient by time, 20 workers with quadratics of their own",
    },
)

DROPCOMPUTE = Paper(
    "Giladi et al. 2023",
    "DropCompute: simple and more robust distributed synchronous training via compute variance reduction",
    "arXiv:2306.10598",
    {"Scaling": "Speed-up of a compute threshold against the number of workers, and its formula"},
)

MINDFLAYER = Paper(
    "Maranjyan et al. 2025b",
    "MindFlayer SGD: efficient parallel SGD in the presence of heterogeneous and random worker compute times",
    "arXiv:2410.04285",
    {"Heavy tails": "Time to a target where run-times have heavy tails"},
)

OPTIREDUCE = Paper(
    "Warraich et al. 2025",
    "OptiReduce: resilient and tail-optimal AllReduce for distributed deep learning in the cloud",
    "arXiv:2310.06993",
    {"Tails": "Time to accuracy where the 99th percentile is 1.5 and 3 times the median"},
)

BIRCH = Paper(
    "Tyurin and Sivtsov 2025",
    "Birch SGD: a tree graph framework for local and asynchronous SGD methods",
    "arXiv:2505.09218",
    {
        "Regimes": "Which method is fastest with 16, 64 and 256 workers",
        "Winners": "Which method is fastest where computing, messages or both are slow or unequal",
    },
)

LIU = Paper(
    "Liu et al. 2024",
    "Asynchronous local-SGD training for language modeling",
    "arXiv:2401.09135",
    {"Four speeds": "Delayed Nesterov and dynamic local updates where workers have four speeds"},
)

YOUNG = Paper(
    "Young 1974; Daly 2006",
    "A first order approximation to the optimum checkpoint interval; A higher order estimate",
    "doi:10.1145/361147.361115; doi:10.1016/j.future.2004.11.016",
    {"Interval": "Goodput of a job that fails, against the interval between checkpoints"},
)

DECOUPLED = Paper(
    "Decoupled DiLoCo 2026",
    "Decoupled DiLoCo for resilient distributed pre-training",
    "arXiv:2604.21428",
    {"Goodput": "Goodput of learners that fail, and accuracy at equal goodput"},
)

STREAMING = Paper(
    "Douillard et al. 2025",
    "Streaming DiLoCo with overlapping communication: towards a distributed free lunch",
    "arXiv:2501.18512",
    {
        "Table 1": "Hours of training at 1 Gbit/s, data parallel and Streaming DiLoCo",
        "Table 4": "Bandwidth that a compute utilisation needs, by method and model",
    },
)

SCALING = Paper(
    "Charles et al. 2025",
    "Communication-efficient language model training scales reliably and robustly: scaling laws for DiLoCo",
    "arXiv:2503.09799",
    {"Table 6": "Bandwidth that a compute utilisation needs, by model and steps between synchronisations"},
)

BEGUNOV = Paper(
    "Begunov and Tyurin 2026",
    "Do we need asynchronous SGD? On the near-optimality of synchronous methods",
    "arXiv:2602.03802",
    {"Ratio": "Time of m-synchronous SGD over that of Rennala SGD, by law of the compute times and number of workers"},
)

ZMUSHKO = Paper(
    "Zmushko et al. 2026",
    "One-step gradient delay is not a barrier for large-scale asynchronous pipeline parallel LLM pretraining",
    "arXiv:2606.30634",
    {"One step": "Test loss of AdamW and Muon where every gradient is one update late"},
)

ERICKSON = Paper(
    "Erickson and Johansson 2026",
    "Clipping makes distributed and federated asynchronous SGD robust to stragglers",
    "arXiv:2606.13287",
    {"Stragglers": "Training loss of ASGD with and without clipping, by how slow half of the workers are"},
)

SGDLAB = Paper(
    "sgdlab",
    "Its own configuration of digits",
    "no paper",
    {
        "Methods": "Accuracy and time to 95 % of every method, digits",
        "Single worker": "Accuracy of a single worker against the learning rate, digits",
    },
)
