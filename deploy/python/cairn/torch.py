"""Trains PyTorch models with Cairn's servers: replaces torch.optim in a training loop.

    optimizer = cairn.torch.DistributedOptimizer(model.named_parameters(), cairn.connect(), optimizer="Adam")
    ...
    loss.backward()
    optimizer.step(examples=len(batch))      # pushes the gradients, waits for the update, loads the new values
    optimizer.zero_grad()
    ...
    optimizer.close()

The optimizer itself runs on the servers. Buffers, such as the averages of BatchNorm, stay local to each worker. An
embedding with sparse=True pushes its gradient as rows.
"""

import numpy as np
import torch

from cairn.client import Rows


class DistributedOptimizer:

    def __init__(self, named_parameters, client, **init):
        """`init`: arguments of Client.init(). All workers start with the parameters of worker 0."""
        self._parameters = {name: p for name, p in named_parameters if p.requires_grad}
        self._client = client
        self.result = None  # of the last step
        self._take(client.init({name: _array(p) for name, p in self._parameters.items()}, **init))

    def zero_grad(self, set_to_none=True):
        for parameter in self._parameters.values():
            if set_to_none or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad.zero_()

    def step(self, closure=None, examples=1):
        """`examples`: size of this batch, its weight in the mean over the workers."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients = {n: _gradient(p.grad) for n, p in self._parameters.items() if p.grad is not None}
        self.result = self._client.push(gradients, examples)
        self._take(self.result.values)
        return loss

    def close(self, error=None):
        self._client.close(error)

    def _take(self, values):
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(torch.from_numpy(values[name]))


def _array(tensor):
    tensor = tensor.detach().cpu()
    # NumPy has no bfloat16. The client rejects all other types that float32 cannot represent, such as complex numbers.
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).resolve_conj().resolve_neg().numpy()


def _gradient(gradient):
    if not gradient.is_sparse:
        return _array(gradient)
    gradient = gradient.coalesce()
    if gradient.sparse_dim() != 1:
        return _array(gradient.to_dense())
    return Rows(np.asarray(gradient.indices()[0].cpu()), _array(gradient.values()))
