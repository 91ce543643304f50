"""The five papers that sgdlab reproduces, and every table, figure and bound in them."""

import dataclasses
import re
from collections.abc import Iterable, Mapping


@dataclasses.dataclass(frozen=True)
class Paper:
    """A paper and what of it can be reproduced.

    Attributes:
      authors: as it is cited, such as "Chen et al. 2016".
      title: its title.
      source: where it is published.
      rows: number -> what the table, figure or bound shows.
      belief: what we believe of it now, in a few sentences.
    """

    authors: str
    title: str
    source: str
    rows: Mapping[str, str]
    belief: str = ""

    @property
    def slug(self) -> str:
        """Return its name in addresses.

        Example:
          >>> CHEN.slug
          'chen_et_al_2016'
        """
        return re.sub(r"[^a-z0-9]+", "_", self.authors.lower()).strip("_")


CHEN = Paper(
    "Chen et al. 2016",
    "Revisiting distributed synchronous SGD",
    "arXiv:1604.00981",
    {
        "Table 1": "Staleness of each layer's gradients: 40 workers, 18 layers",
        "Figure 2": "Test error against the average staleness of the gradients, MNIST",
        "Figure 3": "Distribution of the time to collect the k-th of 100 gradients",
        "Figure 4": "Mean and median time to collect the k-th of 100 gradients",
        "Figure 5": "Updates to converge against the number of gradients that an update averages",
        "Figure 6": "Estimated time to converge, by how many of 100 machines are waited for",
        "Table 2": "Test precision and epochs to it by the learning rate, Inception with 100 workers",
        "Figure 7": "Epochs to a test precision, by the learning rate",
        "Figure 8": "Synchronous against asynchronous training of Inception with 53, 106 and 212 machines",
        "Figure 9": "Synchronous against asynchronous training of PixelCNN",
    },
    "Staleness costs accuracy, and a few backup workers take the place of the slowest machines: both are so "
    "wherever we could try them. That synchronous training is the faster one rests on what messages and servers "
    "cost, which our clusters do not have; without such costs, asynchronous training is not slower.",
)

WEAK = Paper(
    "Anonymous 2018",
    "Faster distributed synchronous SGD with weak synchronization",
    "submitted to ICLR 2018",
    {
        "Table 1": "Running time and top-1 error of four settings of c and b",
        "Figure 2": "Density of the delays of messages",
        "Figure 3": "Top-1 error against epochs and time, without injected delays",
        "Figure 4": "Top-1 error against epochs and time, with delays injected into messages",
    },
    "The protocol is what it is said to be: with all workers and all blocks it is synchronous SGD, and waiting "
    "for fewer of both saves about a quarter of the time without a loss of accuracy that we could see on a small "
    "task. How much it saves depends on the delays of messages, of which the paper gives only a density.",
)

CUTOFF = Paper(
    "Teng and Wood 2018",
    "High throughput synchronous distributed stochastic gradient descent",
    "arXiv:1803.04209",
    {
        "Figure 2": "Throughput while a slow node recovers, and the run-times of all workers",
        "Figure 3": "Predicted and actual run-times, with and without censoring",
        "Figure 4": "Loss against time of four ways to wait, MNIST",
    },
    "A model of the run-times predicts them well enough to cut off by, and that is faster than waiting for all. "
    "The deep Markov model does, with six additions of ours: in the form that the paper prints it is ahead of the "
    "best static cutoff with none of nine sizes and rates. Small auto-regressors come close to it, and simple rules "
    "do where run-times are independent; how much it adds depends on how long machines stay slow.",
)

GOSSIP = Paper(
    "Jin et al. 2016",
    "How to scale distributed deep learning?",
    "arXiv:1611.04581",
    {
        "Figure 1": "Loss of all-reduce, elastic averaging and gossip with 8 and 16 nodes, by time",
        "Figure 2": "All-reduce against pull gossip with 32, 64 and 128 nodes",
        "Bounds": "Distance and consensus bounds for gossip on a strongly convex objective",
    },
    "A step of gossip takes less time than one of all-reduce, and the disagreement of the nodes falls by a fixed "
    "rate a round, as the analysis says; the printed bound of the asynchronous algorithm holds only if nodes "
    "average before they step. Which method is first to a loss depends on the scatter of the machines and on the "
    "rates.",
)

GAP = Paper(
    "Barkai et al. 2020",
    "Gap-Aware mitigation of gradient staleness",
    "ICLR 2020",
    {
        "Table 1": "Tuned ASGD against GA and DANA-GA, 32 workers",
        "Table 2": "Perplexity of Adam, Adam-SA and Adam-GA, Transformer-XL",
        "Table 3": "ImageNet accuracy with 32 to 128 workers",
        "Table 4": "CIFAR-10 accuracy of ResNet-20 with 4 to 48 workers",
        "Table 5": "CIFAR-10 accuracy of WideResNet-16-4 with 4 to 48 workers",
        "Table 6": "CIFAR-100 accuracy of WideResNet-16-4 with 4 to 48 workers",
        "Figure 1": "Final error of GA by the granularity of the gap, WideResNet-16-4 on CIFAR-10",
        "Figure 2": "Final test error against the number of workers",
        "Figure 3": "Densities of the time of an iteration, homogeneous and heterogeneous",
        "Figure 4": "Mean delay (staleness + 1) and mean gap by epoch",
        "Figure 5": "Final error of GA by the granularity of the gap, the other frameworks",
        "Figure 6": "Final training error against the number of workers",
        "Figure 7": "Test error by epoch with 16 workers",
        "Figure 8": "ImageNet test error by epoch with 64 workers",
        "Figure 9": "ASGD by rate and momentum: ResNet-20 on CIFAR-10",
        "Figure 10": "ASGD by rate and momentum: WideResNet-16-4 on CIFAR-10",
        "Figure 11": "ASGD by rate and momentum: WideResNet-16-4 on CIFAR-100",
        "Figure 12": "Speed-up of asynchronous and synchronous SGD with up to 1,000 workers",
        "Figure 13": "Final test error against the number of workers, heterogeneous",
        "Theorem 1": "Convergence of Gap-Aware to a stationary point, and Corollary 1",
    },
    "At a learning rate that was tuned for one worker, a penalty for staleness is what keeps momentum usable with "
    "many workers: Gap-Aware and DANA-GA stay near the single worker where NAG-ASGD is lost. Penalties by the gap are "
    "better than those by the delay at all numbers of workers. With four workers, though, NAG-ASGD needs no penalty, "
    "and DANA-GA is not always the best. At the best rate of each method the differences are small ([tuned "
    "comparison](tuned/README.md)).",
)

PAPERS = (CHEN, GAP, WEAK, CUTOFF, GOSSIP)


def others(papers: Iterable[Paper]) -> list[Paper]:
    """Papers that are not among the five, each once: those of custom figures."""
    found: list[Paper] = []
    for paper in papers:
        if paper not in (*PAPERS, *found):
            found.append(paper)
    return found
