#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of bench/lane_ranks.py: takes its share of an epoch, and prints when each step ended as a JSON line.

    lane_ranks_run.py RANK <SPEC

SPEC is JSON, made by spec_of() in bench/lane_ranks.py. A step: the next batch, `step_s` asleep for the model, then an
all-reduce of as many numbers as `reduced` says, by gloo. All ranks begin together, when their processes and, with
PyTorch, their workers stand. What the all-reduce takes by itself is measured before and taken off the sleep, so that a
step takes `step_s` when nobody waits for a batch. Of the `ranks` processes those beyond `world` load nothing and only
step along.
"""
import contextlib
import json
import sys
import time
import warnings

import torch
import torch.distributed as dist

sys.dont_write_bytecode = True
from lanes_run import sleep_until


def reduce_s(spec):
    """What an all-reduce takes that nobody comes late to; the same in all ranks."""
    gradient, took = torch.zeros(spec["reduced"]), []
    dist.barrier()
    for _ in range(21):
        time.sleep(0.2 * spec["step_s"])
        since = time.perf_counter()
        dist.all_reduce(gradient)
        took.append(time.perf_counter() - since)
    least = torch.tensor([sorted(took)[10]], dtype=torch.float64)
    dist.all_reduce(least, dist.ReduceOp.MIN)
    return min(float(least), 0.5 * spec["step_s"])


def consume(batches, ids_of, spec):
    """When each step ended, what was waited for in it, and which samples came."""
    gradient, model_s = torch.zeros(spec["reduced"]), spec["step_s"] - spec["reduce_s"]
    ends, waits, seen = [], [], []
    since = time.perf_counter()
    for batch in batches:
        got = time.perf_counter()
        waits.append(got - since)
        seen.extend(ids_of(batch))
        del batch
        sleep_until(got + model_s)
        dist.all_reduce(gradient)
        since = time.perf_counter()
        ends.append(since)
    return {"ends": ends, "waits": waits, "ids": seen, "reduce_s": spec["reduce_s"]}


def run_nothing(_rank, spec):
    """Batches that are always there: what the steps take by themselves."""
    dist.barrier()
    return consume(iter([()] * spec["steps"]), list, spec)


def run_penstock(rank, spec):
    import numpy  # noqa: F401  else the first batch would wait for it
    import penstock

    data = penstock.Dataset(spec["data"])
    with contextlib.ExitStack() as stack:
        engine = spec["socket"]
        if not engine:
            engine = stack.enter_context(penstock.Engine(workers=spec["workers"], memory=256 << 20, cache=0))
        dist.barrier()
        loader = stack.enter_context(penstock.Loader(
            data, spec["pipeline"], spec["batch"], sampler=spec["order"], engine=engine, rank=rank,
            world=spec["world"], order="ready", ready_depth=spec["depth"], reorder_window=spec["window"], epochs=1,
            without=spec["without"]))
        found = consume(iter(loader), lambda batch: batch.ids[batch.valid].tolist(), spec)
        stats = loader.stats()
    return {**found, "stats": {name: value for name, value in stats.items() if isinstance(value, (int, float))}}


def run_torch(rank, spec):
    from torch.utils.data import DataLoader, Dataset, Sampler
    from torch.utils.data.distributed import DistributedSampler

    ids, world, batch = spec["order"], spec["world"], spec["batch"]

    class Costly(Dataset):
        """The k-th sample of a rank's share costs what Penstock's does. Number -1 costs nothing."""

        def __len__(self):
            return len(ids)

        def __getitem__(self, number):
            if number < 0:
                return torch.zeros(3, 32, 32), -1
            whose, nth = number % world, number // world
            one = ids[(nth // batch * world + whose) * batch + nth % batch]
            time.sleep(spec["light_s"])
            for _ in range(spec["stages"] if one % spec["period"] == 0 else 0):
                time.sleep(spec["heavy_s"] / spec["stages"])
            return torch.zeros(3, 32, 32), one

    class Twice(Sampler):
        """First what starts every worker, then the rank's share in order."""

        def __init__(self, share):
            self.share, self.started = share, False

        def __len__(self):
            return len(self.share)

        def __iter__(self):
            if self.started:
                return iter(self.share)
            self.started = True
            return iter([-1] * (spec["workers"] * batch))

    data = Costly()
    share = DistributedSampler(data, num_replicas=world, rank=rank, shuffle=False)
    loader = DataLoader(data, batch_size=batch, sampler=Twice(share), num_workers=spec["workers"],
                        prefetch_factor=spec["prefetch"], persistent_workers=True, in_order=spec["in_order"])
    for _ in loader:
        pass
    dist.barrier()
    return consume(iter(loader), lambda one: one[1].tolist(), spec)


def main():
    rank, spec = int(sys.argv[1]), json.loads(sys.stdin.read())
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # they sleep
    dist.init_process_group("gloo", init_method="file://" + spec["meeting"], rank=rank, world_size=spec["ranks"])
    spec["reduce_s"] = reduce_s(spec)
    kind = spec["kind"] if rank < spec["world"] else "nothing"
    run = {"nothing": run_nothing, "penstock": run_penstock, "torch": run_torch}[kind]
    print(json.dumps(run(rank, spec)), flush=True)
    dist.barrier()
    return 0


if __name__ == "__main__":
    sys.exit(main())
