# SPDX-License-Identifier: Apache-2.0
"""What a verdict advises is done, exactly that, and what it promised has to come: rate, and stall that is left."""
import os
import threading

import pytest

import penstock
from conftest import Archive, Consumer, helped, make, until, verdict_of

CROP = "decode | random_resized_crop(16) | hflip"
RATE, STALL = 0.8, 0.1  # of what was promised at least; more than was promised at most


def advice(verdict, what):
    assert what in helped(verdict), verdict
    return next(one for one in verdict["help"] if one["what"] == what)


def kept(loader, step_s, promised, **more):
    """Trains until what was promised is there."""
    print("promised: %s" % promised)
    rate, stall = RATE * promised["rate"], promised["stall"] + STALL
    return until(loader, step_s, lambda v: v["numbers"]["rate"] >= rate and v["stall"] <= stall, **more)


# ---- the source ------------------------------------------------------------------------------------------------------

STEP_S = 0.025  # 320 samples/s
SLOW = {"rate": 110e3, "delay_s": 0, "times": 2}  # 62 photos a second, of 600


def loads(address, **more):
    return penstock.Loader(penstock.Dataset(address, index_dir=""), CROP, 8, workers=2, **{"cache": 0, **more})


def test_a_source_of_more_bandwidth(bucket):
    with loads(bucket(**SLOW)) as loader:
        promised = advice(verdict_of(loader, STEP_S, "source"), "source")
    with loads(bucket(**{**SLOW, "rate": SLOW["rate"] * promised["amount"]})) as loader:
        kept(loader, STEP_S, promised)


def test_a_cache_before_a_slow_source(bucket):
    address = bucket(**SLOW)
    with loads(address) as loader:
        promised = advice(verdict_of(loader, STEP_S, "source"), "cache")
    with loads(address, cache=int(promised["amount"])) as loader:
        kept(loader, STEP_S, promised)


def test_a_faster_source_of_the_users_own(photos):
    with penstock.Loader(Archive(photos, 0.3), CROP, 8, workers=2, cache=0) as loader:
        promised = advice(verdict_of(loader, 0.05, "source"), "source")
    with penstock.Loader(Archive(photos, 0.3 / promised["amount"]), CROP, 8, workers=2, cache=0) as loader:
        kept(loader, 0.05, promised)


# ---- the cache -------------------------------------------------------------------------------------------------------

DEAR = "decode | delay(10, by=burn) | random_resized_crop(16) | hflip"


def test_a_cache_for_one_who_takes_all_it_gets(photos):
    with penstock.Loader(photos, DEAR, 8, workers=2, cache=0) as loader:
        promised = advice(verdict_of(loader, 0, "augment"), "cache")
    assert promised["amount"] < 32 << 20, "all photos are 8.5 MB: %s" % promised
    with penstock.Loader(photos, DEAR, 8, workers=2, cache=int(promised["amount"])) as loader:
        kept(loader, 0, promised)


# ---- workers and cores -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers, batch, step_s", [(1, 2, 0.05), (2, 8, 0.05), (3, 8, 0.02), (2, 4, 0)])
def test_more_workers(photos, workers, batch, step_s):
    with penstock.Loader(photos, CROP + " | delay(60)", batch, workers=workers, cache=0) as loader:
        promised = advice(verdict_of(loader, step_s, "workers"), "workers")
    more = workers + int(promised["amount"])
    with penstock.Loader(photos, CROP + " | delay(60)", batch, workers=more, cache=0) as loader:
        kept(loader, step_s, promised)


@pytest.fixture
def cores():
    """cores(n): threads that are begun from now on have so many."""
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("one core is all there is")
    yield lambda count: os.sched_setaffinity(0, sorted(before)[:count])
    os.sched_setaffinity(0, before)


def with_cores(photos, cores, holds):
    with penstock.Loader(photos, CROP + " | delay(20, by=burn)", 2, workers=cores, cache=0) as loader:
        return until(loader, 0, holds)


def test_more_cores(photos, cores):
    """Other programs have the cores too, now less, now more: it is promised for the cores that the workers get."""
    cores(1)
    told = with_cores(photos, 1, lambda v: v["kind"] == "augment" and "cores" in helped(v))
    promised, had = advice(told, "cores"), told["numbers"]["cores_busy"]
    assert promised["amount"] == 1, promised
    cores(2)
    print(promised)

    def kept_for_these(verdict):
        part = min(1, verdict["numbers"]["cores_busy"] / (2 * had))
        return verdict["numbers"]["rate"] >= RATE * part * promised["rate"]

    with_cores(photos, 2, kept_for_these)


def starve(photos, workers, kind_or_promise):
    engine = penstock.Engine(workers=workers)
    with penstock.Loader(photos, CROP + " | delay(150)", 8, engine=engine) as heavy, \
            penstock.Loader(photos, CROP, 2, engine=engine) as light:
        other = Consumer(heavy, 0)
        thread = threading.Thread(target=other.run)
        thread.start()
        try:
            if kind_or_promise == "starved":
                return verdict_of(light, 0.02, "starved")
            return kept(light, 0.02, kind_or_promise)
        finally:
            other.stop.set()
            thread.join()
            engine.close()


def test_more_cores_for_one_that_starves(photos):
    told = starve(photos, 2, "starved")
    promised = advice(told, "cores")
    starve(photos, 2 + int(promised["amount"]), promised)


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_memory_for_more_batches(photos):
    """Bursts of 12 batches of 3 MB, for which there is time in between, but no room."""
    text = "decode | random_resized_crop(128) | delay(5) | normalize(imagenet)"
    more = {"workers": 4, "cache": 0, "ready_depth": 16}
    with penstock.Loader(photos, text, 16, memory="40M", **more) as loader:
        promised = advice(verdict_of(loader, 1.5, "memory", burst=12, each_s=3.0), "memory")
    with penstock.Loader(photos, text, 16, memory=(40 << 20) + int(promised["amount"]), **more) as loader:
        kept(loader, 1.5, promised, burst=12, each_s=3.0)


def test_memory_for_more_samples_at_a_time(tmp_path):
    """Pictures of 12 MB, of which as many are in hand as there is room for."""
    data, text = make(tmp_path, 6, 2000, 2000, "png"), "decode | delay(400) | center_crop(16)"
    with penstock.Loader(data, text, 2, workers=4, cache=0, memory="48M") as loader:
        promised = advice(verdict_of(loader, 0.2, "memory"), "memory")
    with penstock.Loader(data, text, 2, workers=4, cache=0, memory=(48 << 20) + int(promised["amount"])) as loader:
        kept(loader, 0.2, promised)
