"""PyTorch models on Cairn's servers.

    job = cairn.init()
    optimizer = cairn.torch.distribute(torch.optim.AdamW(model.parameters(), lr=1e-3), model, job)
    for x, y in loader:
        optimizer.zero_grad()
        loss_of(model(x), y).backward()          # gradients leave while backward goes on
        optimizer.step(examples=len(x))          # the new values are in place
    job.close()

The rule of the optimizer runs on the servers, with torch's arithmetic. Nothing wraps the model: names stay. The modules
Embedding, EmbeddingBag and EmbeddingBagCollection have their rows in tables on the servers.
"""

from cairn.torch.all_reduce import AllReduceOptimizer
from cairn.torch.embedding import Embedding, EmbeddingBag, EmbeddingBagCollection, EmbeddingBagConfig, KeyedTensor
from cairn.torch.optimizer import DistributedOptimizer, distribute

__all__ = ["AllReduceOptimizer", "DistributedOptimizer", "Embedding", "EmbeddingBag", "EmbeddingBagCollection",
           "EmbeddingBagConfig", "KeyedTensor", "distribute"]
