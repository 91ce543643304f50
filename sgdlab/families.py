"""All families of parts that configurations choose from, in the order in which `--help` lists them."""

from sgdlab.cluster.family import CLUSTERS
from sgdlab.compressions.family import COMPRESSIONS
from sgdlab.data.family import DATASETS
from sgdlab.failures.family import FAILURES
from sgdlab.networks.family import NETWORKS
from sgdlab.predictors.family import PREDICTORS
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.rules.family import RULES
from sgdlab.tasks.family import TASKS
from sgdlab.transports.family import TRANSPORTS

FAMILIES = (
    *(PROTOCOLS, RULES, CLUSTERS, TRANSPORTS, COMPRESSIONS, FAILURES),
    *(PREDICTORS, NETWORKS, DATASETS, TASKS),
)
