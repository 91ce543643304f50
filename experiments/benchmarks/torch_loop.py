"""`Swapping`: asynchronous SGD as a loop in PyTorch that swaps weights, to compare replay with.

It is what one would write without sgdlab: one model, a copy of the weights for every worker, and a loop over the
gradients in the order of a schedule. sgdlab does not depend on torch: import this module only if it is installed.
"""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, pad

_WIDTHS = (16, 32, 64)


class CifarResNet(nn.Module):
    """`sgdlab.networks.CifarResNet`: the same layers and number of parameters.

    Args:
      depth: number of layers with weights, 6 n + 2.
    """

    def __init__(self, depth: int = 20):
        super().__init__()
        layers, before = [nn.Conv2d(3, _WIDTHS[0], 3, padding=1, bias=False), nn.BatchNorm2d(_WIDTHS[0]), nn.ReLU()], 16
        for stage, width in enumerate(_WIDTHS):
            for number in range((depth - 2) // 6):
                layers.append(_Block(before, width, 2 if stage and not number else 1))
                before = width
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(before, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Maps [B, C, H, W] to logits [B, 10]."""
        return self.head(self.layers(images).mean((2, 3)))


class _Block(nn.Module):
    """Two convolutions, each with BatchNorm, and a shortcut without parameters."""

    def __init__(self, before: int, width: int, stride: int):
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.stride, self.more = stride, width - before

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        first = self.more // 2
        shortcut = images[:, :, :: self.stride, :: self.stride]
        return torch.relu(self.residual(images) + pad(shortcut, (0, 0, 0, 0, first, self.more - first)))


class Swapping:
    """The loop; each call executes all gradients and returns the last loss.

    Args:
      depth: of the network.
      worker: int[R], the worker of each gradient: it reads the newest weights when it has pushed the gradient before.
      num_workers: N.
      images: float32[examples, H, W, 3].
      labels: int[examples].
      order: int[batches, B], the examples of each batch.
      learning_rate: eta.
      momentum: gamma.
    """

    def __init__(
        self,
        depth: int,
        worker: np.ndarray,
        num_workers: int,
        *,
        images: np.ndarray,
        labels: np.ndarray,
        order: np.ndarray,
        learning_rate: float,
        momentum: float,
    ):
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.backends.cudnn.benchmark = True
        self.model = CifarResNet(depth).to(self._device)
        self._images = torch.tensor(np.moveaxis(images, 3, 1), device=self._device)
        self._labels = torch.tensor(labels, dtype=torch.long, device=self._device)
        self._order = torch.tensor(order, dtype=torch.long, device=self._device)
        self._worker, self._rates = worker.tolist(), (learning_rate, momentum)
        self._weights = list(self.model.parameters())
        self._server = [weight.detach().clone() for weight in self._weights]
        self._velocity = [torch.zeros_like(weight) for weight in self._server]
        self._copies = [[weight.clone() for weight in self._server] for _ in range(num_workers)]

    def __call__(self) -> float:
        """Executes all gradients."""
        (rate, momentum), loss = self._rates, torch.zeros(())
        for gradient, worker in enumerate(self._worker):
            with torch.no_grad():
                torch._foreach_copy_(self._weights, self._copies[worker])
            chosen = self._order[gradient % len(self._order)]
            loss = cross_entropy(self.model(self._images[chosen]), self._labels[chosen])
            grads = torch.autograd.grad(loss, self._weights)
            with torch.no_grad():
                torch._foreach_mul_(self._velocity, momentum)
                torch._foreach_add_(self._velocity, grads)
                torch._foreach_add_(self._server, self._velocity, alpha=-rate)
                torch._foreach_copy_(self._copies[worker], self._server)
        return float(loss.detach())  # waits for the device
