#!/usr/bin/env python3
"""Retrieves films for users of MovieLens-100K: a tower of users, a tower of films, and the softmax over a batch.

    tests/bench/movielens.sh ml-100k
    cairn run --ps 1 --workers 2 deploy/examples/python/two_tower.py --data ml-100k

The chief prints the share of the test set's likes (ratings of at least 4) whose film is among the ten that the towers
rank highest, of those that the user has not rated in the training set.
"""

import argparse
import csv
import hashlib
import pathlib

import cairn
import cairn.torch
import numpy as np
import torch
from torch import nn

LIKE = 4
FIRST = cairn.tables.Normal(0, 0.1)


def table(name, width, features):
    return cairn.torch.EmbeddingBagConfig(name, width, None, features, pooling="mean", optimizer="Adagrad", lr=0.05,
                                          first_values=FIRST)


class TwoTower(nn.Module):
    """Scores of users and films are dot products of their towers' results."""

    def __init__(self, width):
        super().__init__()
        self.embeddings = cairn.torch.EmbeddingBagCollection(
            [table("users", width, ["user"]), table("groups", width, ["group"]),  # age, gender, occupation
             table("films", width, ["film"]), table("genres", width, ["genre"])])
        self.user = nn.Sequential(nn.Linear(2 * width, 64), nn.ReLU(), nn.Linear(64, width))
        self.film = nn.Sequential(nn.Linear(2 * width, 64), nn.ReLU(), nn.Linear(64, width))

    def forward(self, features):
        user, group, film, genre = self.embeddings(features).to_dict().values()
        return self.user(torch.cat([user, group], 1)), self.film(torch.cat([film, genre], 1))


def id_of(kind, word):
    """A 64-bit id for a word: a table needs no vocabulary."""
    return int.from_bytes(hashlib.blake2b(f"{kind} {word}".encode(), digest_size=8).digest(), "little", signed=True)


def read(path):
    """The rows of a file of RecBole's form: [{column: text}]."""
    with open(path, encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file, delimiter="\t")
    names = [name.split(":")[0] for name in head]
    return [dict(zip(names, row)) for row in rows]


class Data:
    """Users, films, and which user has rated which film."""

    def __init__(self, folder):
        users = {row["user_id"]: row for row in read(folder / "ml-100k.user")}
        films = {row["item_id"]: row for row in read(folder / "ml-100k.item")}
        self.user_ids = [[id_of("user", name)] for name in users]
        self.film_ids = [[id_of("film", name)] for name in films]
        self.groups = [[id_of("decade", int(row["age"]) // 10), id_of("gender", row["gender"]),
                        id_of("occupation", row["occupation"])] for row in users.values()]
        self.genres = [[id_of("genre", genre) for genre in row["class"].split()] for row in films.values()]
        places = ({name: i for i, name in enumerate(users)}, {name: i for i, name in enumerate(films)})
        self.train, self.test = (np.array([[places[0][row["user_id"]], places[1][row["item_id"]], float(row["rating"])]
                                           for row in read(folder / f"{part}.inter")]) for part in ("train", "test"))

    def features(self, users, films):
        """The features of users and films, by their places in the files."""
        genres = [self.genres[film] for film in films]
        lengths = torch.tensor([0, *[len(of_film) for of_film in genres]])
        return {"user": torch.tensor([self.user_ids[user] for user in users]),
                "group": torch.tensor([self.groups[user] for user in users]),
                "film": torch.tensor([self.film_ids[film] for film in films]),
                "genre": (torch.tensor([i for of_film in genres for i in of_film], dtype=torch.int64), lengths.cumsum(0)[:-1])}


def batches(data, job, steps, batch_size):
    """This worker's part of each batch of likes, from the current step on: features, and the films' places."""
    likes = data.train[data.train[:, 2] >= LIKE][:, :2].astype(np.int64)
    per_epoch = max(len(likes) // (batch_size * job.workers), 1)
    for step in range(job.position, steps):
        order = np.random.default_rng(step // per_epoch).permutation(len(likes))
        first = (step % per_epoch * job.workers + job.worker) * batch_size
        users, films = likes[order[first:first + batch_size]].T
        yield data.features(users, films), torch.from_numpy(films)


def hit_rate(model, data, best=10):
    """The share of the test set's likes whose film is among the `best` ones that the user has not rated before."""
    users, films = len(data.user_ids), len(data.film_ids)
    places = np.arange(max(users, films))
    with torch.no_grad():
        user, film = model(data.features(places % users, places % films))
    scores = user[:users] @ film[:films].T
    seen = data.train[:, :2].astype(np.int64)
    scores[seen[:, 0], seen[:, 1]] = -torch.inf
    highest = scores.topk(best, dim=1).indices
    likes = torch.from_numpy(data.test[data.test[:, 2] >= LIKE][:, :2].astype(np.int64))
    return (highest[likes[:, 0]] == likes[:, 1:]).any(1).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description="Trains a two-tower model on MovieLens-100K.")
    parser.add_argument("--data", type=pathlib.Path, default="ml-100k", help="folder that tests/bench/movielens.sh writes")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch_size", type=int, default=256, help="of each worker")
    parser.add_argument("--width", type=int, default=32, help="elements of a row")
    options = parser.parse_args()

    torch.manual_seed(0)
    model, data, job = TwoTower(options.width), Data(options.data), cairn.init()
    optimizer = cairn.torch.distribute(torch.optim.Adam(model.parameters(), lr=1e-3), model, job)
    liked = data.train[data.train[:, 2] >= LIKE][:, 1].astype(np.int64)
    log_share = torch.from_numpy(np.bincount(liked, minlength=len(data.film_ids)) / len(liked)).clamp(min=1e-9).log().float()
    steps = options.epochs * max(len(liked) // (options.batch_size * job.workers), 1)
    with job:
        loader = batches(data, job, steps, options.batch_size)
        for features, films in job.prefetch(loader, lambda batch: model.embeddings.ids(batch[0])):
            optimizer.zero_grad()
            user, film = model(features)
            scores = user @ film.T - log_share[films]  # frequent films are in more batches (Yi et al., RecSys 2019)
            same = (films[:, None] == films[None]) & ~torch.eye(len(films), dtype=torch.bool)
            loss = nn.functional.cross_entropy(scores.masked_fill(same, -1e9), torch.arange(len(films)))
            loss.backward()
            optimizer.step(examples=len(films))
            if job.is_chief and job.version % 100 == 0:
                print(f"step {job.version} of {steps}: loss {loss.item():.4f}", flush=True)
        if job.is_chief:
            print(f"test set: HitRate@10 {hit_rate(model.eval(), data):.4f}", flush=True)


if __name__ == "__main__":
    main()
