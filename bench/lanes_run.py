#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One loader under one consumer, for bench/lanes.py and lane_parts.py: prints waits and seconds as a JSON line.

    lanes_run.py penstock|torch SPEC

SPEC is JSON, made by spec_of() in bench/lanes.py. The consumer takes a batch, then sleeps `step_s`; or, with `burst`,
takes so many at once and then sleeps as long as all of them. The clock starts when the loader may begin with the first sample: Penstock's before the job is opened, PyTorch's when its processes
stand. With `gated` Penstock's waits for a line on its input before that. Of several `passes` through the samples the
last one is told.
"""
import json
import sys
import time

ABSENT = 3  # exit status: this build has no such schedule


def sleep_until(deadline):
    left = deadline - time.perf_counter()
    if left > 0:
        time.sleep(left)


def consume(batches, ids_of, spec, begin):
    """Takes what there is; each sample must come once."""
    waits, seen, busy_s, burst = [], [], 0.0, spec.get("burst", 1)
    since = time.perf_counter()
    for batch in batches:
        got = time.perf_counter()
        waits.append(got - since)
        seen.extend(ids_of(batch))
        del batch
        if len(waits) % burst == 0:
            sleep_until(got + burst * spec["step_s"])
        since = time.perf_counter()
        busy_s += since - got
        if len(seen) == spec["samples"]:
            break
    if sorted(seen) != list(range(spec["first"], spec["first"] + spec["samples"])):
        sys.exit("%d samples came, %d of them different, of %d" % (len(seen), len(set(seen)), spec["samples"]))
    return {"seconds": since - begin, "waits": waits, "busy_s": busy_s}


# ---- Penstock --------------------------------------------------------------------------------------------------------


def scheduled(spec):
    """The options that choose a schedule. A build without them has a pool in ready or strict order."""
    import inspect

    import penstock

    known = inspect.signature(penstock.Loader).parameters
    if "schedule" in known:
        options = {"schedule": spec["schedule"]}
        if spec["without"]:
            options["without"] = spec["without"]
        return {"order": "strict" if spec["schedule"] in ("inorder", "batch-per-worker") else "ready", **options}
    orders = {"plain": "ready", "inorder": "strict"}
    if spec["schedule"] not in orders:
        sys.exit(ABSENT)
    return {"order": orders[spec["schedule"]]}


def run_penstock(spec):
    import numpy  # noqa: F401  else the first batch would wait for it
    import penstock

    options = scheduled(spec)
    data, numbers = penstock.Dataset(spec["data"]), range(spec["first"], spec["first"] + spec["samples"])
    with penstock.Engine(workers=spec["workers"], memory=256 << 20, cache=0) as engine:
        if spec.get("gated"):
            print(json.dumps({"stands": True}), flush=True)
            sys.stdin.readline()
        begin, cpu = time.perf_counter(), time.process_time()
        with penstock.Loader(data, spec["pipeline"], spec["batch"], sampler=numbers, engine=engine,
                             ready_depth=spec["depth"], reorder_window=spec["window"], epochs=spec["epochs"],
                             **options) as loader:
            for _ in range(spec.get("passes", 1)):
                found = consume(iter(loader), lambda batch: batch.ids.tolist(), spec, begin)
                begin = time.perf_counter()
            stats = loader.stats()
    found["cpu_s"] = time.process_time() - cpu
    return {**found, "stats": {name: value for name, value in stats.items() if isinstance(value, (int, float))}}


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def run_torch(spec):
    import torch
    from torch.utils.data import DataLoader, Dataset, Sampler

    spend = burn if spec["burns"] else time.sleep
    hits = [bit == "1" for bit in spec["hits"]]

    class Costly(Dataset):
        """The same costs as the pipeline's, and a picture of the same bytes. Number -1 costs nothing."""

        def __len__(self):
            return spec["samples"]

        def __getitem__(self, number):
            if number >= 0:
                spend(spec["light_s"])
            if number >= 0 and hits[number]:
                for _ in range(spec["stages"]):
                    spend(spec["heavy_s"] / spec["stages"])
            return torch.zeros(3, 32, 32), number + spec["first"]

    class Twice(Sampler):
        """First what starts every worker, then the samples in order."""

        def __init__(self):
            self.started = False

        def __len__(self):
            return spec["samples"]

        def __iter__(self):
            if not self.started:
                self.started = True
                return iter([-1] * (spec["workers"] * spec["batch"]))
            return iter(range(spec["samples"]))

    torch.set_num_threads(1)
    loader = DataLoader(Costly(), batch_size=spec["batch"], sampler=Twice(), num_workers=spec["workers"],
                        prefetch_factor=spec["prefetch"], persistent_workers=True, in_order=spec["in_order"])
    for _ in loader:
        pass
    begin = time.perf_counter()
    found = consume(iter(loader), lambda batch: batch[1].tolist(), spec, begin)
    return {**found, "torch": torch.__version__}


def main():
    spec = json.loads(sys.argv[2])
    print(json.dumps(run_penstock(spec) if sys.argv[1] == "penstock" else run_torch(spec)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
