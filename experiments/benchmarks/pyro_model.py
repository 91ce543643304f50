"""The deep Markov model and its guide in Pyro, with which the speed of sgdlab's training is compared.

It follows Pyro's tutorial of the deep Markov model: torch modules, a loop over the steps of a window, a sample
statement for each, and no compilation. The model is that of `sgdlab.deep_markov.model`, with the same parameters, so
that those of one can be given to the other. sgdlab does not depend on torch and pyro-ppl: import this module only if
they are installed.
"""

import math
from typing import Any

import jax
import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch import nn
from torch.nn.functional import softplus

from sgdlab.deep_markov import Architecture

MeanAndStd = tuple[torch.Tensor, torch.Tensor]

_CENTER, _LEAST_STD = 0.5, 1e-3  # as in sgdlab.deep_markov.model


class GatedTransition(nn.Module):
    """Maps a state to mean and standard deviation of the next state."""

    def __init__(self, widths: Architecture):
        super().__init__()
        self.gate_hidden = nn.Linear(widths.state, widths.gate)
        self.gate = nn.Linear(widths.gate, widths.state)
        self.proposed_hidden = nn.Linear(widths.state, widths.gate)
        self.proposed = nn.Linear(widths.gate, widths.state)
        self.linear = nn.Linear(widths.state, widths.state)
        self.std = nn.Linear(widths.state, widths.state)

    def forward(self, z: torch.Tensor) -> MeanAndStd:
        """[B, Z] -> mean and standard deviation, [B, Z]."""
        gate = torch.sigmoid(self.gate(torch.relu(self.gate_hidden(z))))
        proposed = self.proposed(torch.relu(self.proposed_hidden(z)))
        mean = (1 - gate) * self.linear(z) + gate * proposed
        return mean, softplus(self.std(torch.relu(mean))) + _LEAST_STD


class Emitter(nn.Module):
    """Maps a state to mean and standard deviation of the normalised run-times."""

    def __init__(self, num_workers: int, widths: Architecture):
        super().__init__()
        self.inner = nn.Linear(widths.state, widths.emission)
        self.mean = nn.Linear(widths.emission, num_workers)
        self.hidden = nn.Linear(num_workers, widths.scale)
        self.std = nn.Linear(widths.scale, num_workers)

    def forward(self, z: torch.Tensor) -> MeanAndStd:
        """[B, Z] -> mean and standard deviation, [B, N]."""
        mean = self.mean(self.inner(z))
        return mean, softplus(self.std(torch.relu(self.hidden(mean - _CENTER)))) + _LEAST_STD


class Combiner(nn.Module):
    """Maps the previous state and both recurrent networks' memories to mean and standard deviation of the state."""

    def __init__(self, widths: Architecture):
        super().__init__()
        self.previous = nn.Linear(widths.state, widths.recurrent)
        self.mean = nn.Linear(widths.recurrent, widths.state)
        self.std = nn.Linear(widths.state, widths.state)

    def forward(self, z: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> MeanAndStd:
        """[B, Z], [B, R] and [B, R] -> mean and standard deviation, [B, Z]."""
        mean = self.mean((torch.tanh(self.previous(z)) + left + right) / 3)
        return mean, softplus(self.std(mean)) + _LEAST_STD


class PyroModel(nn.Module):
    """Model and guide of windows of run-times for Pyro.

    Args:
      num_workers: N.
      widths: widths of the networks; `literal` must be False.
      parameters: initial parameters, those of sgdlab's networks of the same widths.

    Raises:
      ValueError: if the number of parameters is not that of the networks here.
    """

    def __init__(self, num_workers: int, widths: Architecture, parameters: dict[str, Any]):
        super().__init__()
        self.transition = GatedTransition(widths)
        self.emission = Emitter(num_workers, widths)
        self.rnn = nn.RNN(num_workers, widths.recurrent, nonlinearity="relu", batch_first=True, bidirectional=True)
        self.combiner = Combiner(widths)
        self.before = nn.Parameter(torch.zeros(widths.state))
        self.guide_before = nn.Parameter(torch.zeros(widths.state))
        for name in ("bias_hh_l0", "bias_hh_l0_reverse"):  # torch's second bias: it adds nothing to the first
            nn.init.zeros_(getattr(self.rnn, name).requires_grad_(False))
        self.eval()  # no effect without dropout; prevents a warning of Pyro about parameters that are not trained
        self._take(parameters)
        size = sum(np.size(leaf) for leaf in jax.tree.leaves(parameters))
        if size != self.num_parameters():
            raise ValueError(f"parameters with {size} numbers must have {self.num_parameters()}, as the networks here")

    def model(self, windows: torch.Tensor) -> None:
        """p(x, z) of a batch of windows, [B, L, N], normalised; log densities are per value."""
        pyro.module("networks", self)
        with pyro.poutine.scale(scale=1 / windows.numel()), pyro.plate("windows", len(windows)):
            z = self.before.expand(len(windows), -1)
            for t in range(windows.shape[1]):
                z = pyro.sample(f"z_{t}", dist.Normal(*self.transition(z)).to_event(1))
                pyro.sample(f"x_{t}", dist.Normal(*self.emission(z)).to_event(1), obs=windows[:, t])

    def guide(self, windows: torch.Tensor) -> None:
        """q(z | x) of a batch of windows, [B, L, N]."""
        pyro.module("networks", self)
        left, right = self.rnn(windows - _CENTER)[0].chunk(2, dim=-1)
        with pyro.poutine.scale(scale=1 / windows.numel()), pyro.plate("windows", len(windows)):
            z = self.guide_before.expand(len(windows), -1)
            for t in range(windows.shape[1]):
                z = pyro.sample(f"z_{t}", dist.Normal(*self.combiner(z, left[:, t], right[:, t])).to_event(1))

    def num_parameters(self) -> int:
        """Return number of trained parameters."""
        return sum(math.prod(p.shape) for p in self.parameters() if p.requires_grad)

    @torch.no_grad()
    def _take(self, parameters: dict[str, Any]) -> None:
        """Copies the values of sgdlab's parameters, in which linear layers that share an input are a single layer."""
        transition, guide = dict(parameters["transition"]), parameters["guide"]
        gate_hidden, proposed_hidden = _halves(transition.pop("hidden"))
        _fill(self.transition, {**transition, "gate_hidden": gate_hidden, "proposed_hidden": proposed_hidden})
        _fill(self.emission, parameters["emission"])
        _fill(self.combiner, {name: guide[name] for name in ("previous", "mean", "std")})
        for suffix, inputs, recurrent in zip(
            ("", "_reverse"), _halves(guide["inputs"]), guide["recurrent"], strict=True
        ):
            _copy(getattr(self.rnn, f"weight_ih_l0{suffix}"), inputs["kernel"])
            _copy(getattr(self.rnn, f"bias_ih_l0{suffix}"), inputs["bias"])
            _copy(getattr(self.rnn, f"weight_hh_l0{suffix}"), recurrent)
        _copy(self.before, parameters["before"])
        _copy(self.guide_before, parameters["guide_before"])


class PyroTraining:
    """Pyro's stochastic variational inference on windows of a run.

    Args:
      num_workers: N.
      widths: widths of the networks.
      parameters: initial parameters, those of sgdlab's networks of the same widths.
      train: float[T, N], normalised run-times.
      batch: number of windows in a step.
      learning_rate: learning rate of Adam.
      clip: largest norm of a gradient.
      seed: seed of batches and draws.
    """

    def __init__(
        self,
        num_workers: int,
        widths: Architecture,
        parameters: dict[str, Any],
        train: np.ndarray,
        *,
        batch: int,
        learning_rate: float,
        clip: float,
        seed: int,
    ):
        pyro.clear_param_store()
        pyro.set_rng_seed(seed)
        pyro.enable_validation(False)  # as in NumPyro
        torch.set_num_threads(1)  # two threads are 5 % faster on an idle machine, and many times slower on a busy one
        self.networks = PyroModel(num_workers, widths, parameters)
        self._train, self._batch, self._lag = torch.tensor(train, dtype=torch.float32), batch, widths.lag
        optimizer = pyro.optim.Adam({"lr": learning_rate}, {"clip_norm": clip})
        self._svi = pyro.infer.SVI(self.networks.model, self.networks.guide, optimizer, pyro.infer.Trace_ELBO())

    def advance(self, steps: int) -> float:
        """Makes `steps` training steps; returns the mean of their ELBOs, per value."""
        losses = [self._svi.step(self._windows()) for _ in range(steps)]
        return -sum(losses) / steps

    def _windows(self) -> torch.Tensor:
        starts = torch.randint(len(self._train) - self._lag + 1, (self._batch, 1))
        return self._train[starts + torch.arange(self._lag)]


def _halves(layer: dict[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Splits a linear layer into the two that it consists of."""
    first, second = ({}, {})
    for name, values in layer.items():
        first[name], second[name] = np.split(np.asarray(values), 2, axis=-1)
    return first, second


def _fill(module: nn.Module, layers: dict[str, dict[str, Any]]) -> None:
    for name, layer in layers.items():
        linear = getattr(module, name)
        _copy(linear.weight, layer["kernel"])
        _copy(linear.bias, layer["bias"])


def _copy(parameter: nn.Parameter, values: Any) -> None:
    """Copies values; weights are transposed, since torch multiplies them from the other side."""
    parameter.copy_(torch.tensor(np.asarray(values).T))
