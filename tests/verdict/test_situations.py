# SPDX-License-Identifier: Apache-2.0
"""Each test builds one situation for real, with a factor of three and more between the cause and the rest, and asks what is slow."""
import resource
import shutil
import threading
import time

import pytest

import penstock
import rigs
from penstock import ops
from conftest import DEADLINE_S, Archive, Consumer, check, helped, make, verdict_of

CROP = "decode | random_resized_crop(16) | hflip"
STEP_S = 0.002
CPUS = penstock.settings()["cpus"]


# ---- where the data lies ---------------------------------------------------------------------------------------------


def test_a_source_of_little_bandwidth(bucket):
    data = penstock.Dataset(bucket(rate=100e3, delay_s=0), index_dir="")
    with penstock.Loader(data, CROP, 8, workers=2, cache=0) as loader:
        verdict = verdict_of(loader, 0.05, "source", also=lambda v: "remove the stall" in v["text"])
    assert helped(verdict) == ["source", "cache"] and 2 <= verdict["help"][0]["amount"] <= 6, verdict
    assert 512 << 10 <= verdict["help"][1]["amount"] <= 2 << 20, "all photos are 537 KB, stored as they are kept: %s" % verdict
    assert verdict["numbers"]["waited_for_source"] > 0.5 and verdict["numbers"]["source_bytes_per_second"] < 300e3
    assert "source-bound: " in verdict["text"] and "MB/s" in verdict["text"]


def test_a_source_that_takes_long_to_answer(bucket):
    data = penstock.Dataset(bucket(rate=1e9, delay_s=2.0), index_dir="")
    with penstock.Loader(data, CROP, 8, workers=2, memory="256M") as loader:
        verdict = verdict_of(loader, STEP_S, "source")
    assert "cores" not in helped(verdict) and verdict["numbers"]["reads"] > 5, verdict
    assert verdict["numbers"]["read_each_seconds"] > 0.1, "not 2 s, since reads are sent ahead: %s" % verdict
    assert "the cache is still being filled" in verdict["text"], verdict


def test_a_slow_source_of_the_users_own(photos):
    with penstock.Loader(Archive(photos, 0.05), CROP, 8, workers=2) as loader:
        verdict = verdict_of(loader, STEP_S, "source")
    assert "cores" not in helped(verdict), verdict


# ---- what is done to samples -----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def large(tmp_path_factory):
    """Pictures that take long to decode: PNG, of which no part can be had alone."""
    return make(tmp_path_factory.mktemp("large"), 12, 1200, 1200, "png")


def test_slow_decoding(large):
    with penstock.Loader(large, "decode | center_crop(16)", 4, workers=CPUS, cache=0) as loader:
        verdict = verdict_of(loader, 0.001, "decode")
    assert verdict["text"].startswith("decode-bound: ") and "decode takes" in verdict["text"]
    assert verdict["numbers"]["decode_seconds"] > 3 * verdict["numbers"]["augment_seconds"]


def test_slow_ops(photos):
    with penstock.Loader(photos, CROP + " | delay(20, by=burn)", 8, workers=CPUS, cache=0) as loader:
        verdict = verdict_of(loader, 0.001, "augment")
    assert "delay takes" in verdict["text"] and "cores" in helped(verdict), verdict
    assert "cache" not in helped(verdict), "what is behind a random op is not kept"


def burn(picture):
    end = time.thread_time() + 0.01
    while time.thread_time() < end:
        pass
    return picture


def test_a_function_of_the_users_that_runs_one_at_a_time(photos):
    with penstock.Loader(photos, [ops.decode(), ops.random_resized_crop(16), penstock.python(burn)], 8, workers=4, cache=0) as loader:
        verdict = verdict_of(loader, 0.001, "augment")
    assert "burn takes" in verdict["text"] and not {"cores", "workers"} & set(helped(verdict)) or CPUS == 1, verdict


# ---- the consumer ----------------------------------------------------------------------------------------------------


def test_a_slow_consumer(photos):
    with penstock.Loader(photos, CROP, 8, workers=2) as loader:
        verdict = verdict_of(loader, 0.1, "gpu")
    assert verdict["text"].startswith("GPU-bound: the consumer takes ") and verdict["stall"] < 0.02 and not verdict["help"]


def test_too_early_to_say(photos):
    with penstock.Loader(photos, CROP, 8, workers=2) as loader:
        assert loader.stats()["verdict"]["kind"] == "starting"
        next(iter(loader))
        verdict = loader.stats()["verdict"]
        check(verdict)
        assert verdict["kind"] == "starting" and "too early" in verdict["text"], verdict


def test_nobody_asks(photos):
    with penstock.Loader(photos, CROP, 8, workers=2) as loader:
        batches = iter(loader)
        for _ in range(10):
            next(batches)
        end = time.monotonic() + DEADLINE_S
        while loader.stats()["verdict"]["kind"] != "idle":
            assert time.monotonic() < end, loader.stats()["verdict"]
            time.sleep(0.5)
        assert "nobody has asked" in loader.stats()["verdict"]["text"]
        next(batches)
        assert loader.stats()["verdict"]["kind"] != "idle"


# ---- what the engine was given ---------------------------------------------------------------------------------------


def test_a_cache_that_is_too_small(photos):
    """27 KB each in decoded form, 8 MB in all; a quarter of that is there. What is left takes half as long again as the consumer."""
    slow = "decode | delay(20, by=burn) | random_resized_crop(16) | hflip"
    with penstock.Loader(photos, slow, 8, workers=CPUS, cache="2M", memory="256M") as loader:
        verdict = verdict_of(loader, 8 / (100.0 * CPUS), "cache")
    assert helped(verdict)[0] == "cache" and verdict["help"][0]["amount"] < 32 << 20, verdict
    assert verdict["help"][0]["stall"] < 0.021 and "remove the stall" in verdict["text"]
    larger = (2 << 20) + int(verdict["help"][0]["amount"])
    with penstock.Loader(photos, slow, 8, workers=CPUS, cache=larger, memory="256M") as loader:
        verdict_of(loader, 8 / (100.0 * CPUS), "gpu")


def test_few_workers_beside_idle_cores(photos):
    with penstock.Loader(photos, CROP + " | delay(60)", 2, workers=1, cache=0) as loader:
        verdict = verdict_of(loader, 0.05, "workers")
    assert helped(verdict) == ["workers"] and "workers-bound: " in verdict["text"], verdict
    wanted = 1 + verdict["help"][0]["amount"]
    assert 2 <= wanted <= 6, "40 samples of 60 ms each are the work of 2.4 workers: %s" % verdict
    with penstock.Loader(photos, CROP + " | delay(60)", 2, workers=int(wanted), cache=0) as loader:
        verdict_of(loader, 0.05, "gpu")


def test_more_workers_than_cores(photos):
    with penstock.Loader(photos, CROP + " | delay(10, by=burn)", 8, workers=6 * CPUS, cache=0, memory="512M") as loader:
        verdict = verdict_of(loader, 0.001, "augment", also=lambda v: "fewer would do" in v["text"])
    assert "workers" not in helped(verdict), verdict


def test_memory_for_too_few_batches(photos):
    """Bursts of 12 batches of 3 MB, for which there is time in between, but no room."""
    text = "decode | random_resized_crop(64) | delay(2) | normalize(imagenet)"
    with penstock.Loader(photos, text, 64, workers=4, cache=0, memory="40M", ready_depth=16, shuffle=True) as loader:
        verdict = verdict_of(loader, 1.5, "memory", burst=12, each_s=3.0)
    assert helped(verdict) == ["memory"] and "of 16 batches ahead" in verdict["text"], verdict


# ---- others ----------------------------------------------------------------------------------------------------------


def test_a_job_that_starves_beside_another(photos):
    engine = penstock.Engine(workers=2)
    with penstock.Loader(photos, CROP + " | delay(150)", 8, engine=engine) as heavy, \
            penstock.Loader(photos, CROP, 2, engine=engine) as light:
        other = Consumer(heavy, 0)
        thread = threading.Thread(target=other.run)
        thread.start()
        try:
            verdict = verdict_of(light, 0.01, "starved")
        finally:
            other.stop.set()
            thread.join()
    assert "1 other job takes" in verdict["text"] and verdict["numbers"]["waited_for_turn"] > 0.6, verdict
    engine.close()


def test_many_bad_samples(tmp_path):
    data = make(tmp_path / "data", 120)
    for number, path in enumerate(sorted(data.rglob("*.jpg"))):
        if number % 3 == 0:
            path.write_bytes(path.read_bytes()[:200])
    with penstock.Loader(data, CROP, 8, workers=2, on_error="skip:100000", cache=0) as loader:
        verdict = verdict_of(loader, 0.02, "bad")
    assert verdict["numbers"]["bad_samples"] >= 5 and "could not be used" in verdict["text"]


def test_slow_samples_in_runs(photos):
    """In strict order one batch waits for four samples of half a second, while all that may be ready is."""
    text = CROP + " | delay(400, share=0.02, runs=2)"
    with penstock.Loader(photos, text, 4, workers=4, cache=0, shuffle=False, ready_depth=2) as loader:
        verdict = verdict_of(loader, 0.004, "augment", also=lambda v: "slow samples hold up" in v["text"], each_s=3.0)
    assert not verdict["help"], verdict


# ---- tiers -----------------------------------------------------------------------------------------------------------

SLOW_TO_DECODE = "decode | delay(20) | random_resized_crop(16) | hflip"


def test_a_remote_tier_that_is_down(photos):
    port, = rigs.free_ports(1)
    with penstock.Loader(photos, SLOW_TO_DECODE, 8, workers=2, cache=0, remote=f"redis://127.0.0.1:{port}") as loader:
        verdict = verdict_of(loader, STEP_S, "remote")
    assert "does not answer" in verdict["text"], verdict


def test_a_disk_tier_that_cannot_be_written(tmp_path):
    """No file may be larger than an entry: what the system answers is what it answers on a full disk, but for the number."""
    data, before = make(tmp_path / "data", 40, 300, 300), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, before[1]))
    try:
        with penstock.Loader(data, SLOW_TO_DECODE, 8, workers=2, cache=0, disk=f"{tmp_path / 'tier'}:64M") as loader:
            verdict = verdict_of(loader, STEP_S, "disk")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "the disk tier is off or full" in verdict["text"], verdict
    shutil.rmtree(tmp_path / "tier", ignore_errors=True)
