# SPDX-License-Identifier: Apache-2.0
"""The front of the native loader: batches as named tuples, tensors, pipelines from objects, ranks, evaluation, figures."""

import os
import pickle
import subprocess
import sys
import threading

import numpy
import pytest

import penstock
from penstock import ops
from conftest import CROP

torch = pytest.importorskip("torch")


def ids_of(loader):
    return [int(i) for batch in loader for i in batch.ids]


def test_a_batch_is_a_named_tuple_that_knows_its_samples(photos):
    batch = next(iter(penstock.Loader(photos, CROP, 8)))
    x, y = batch
    assert isinstance(batch, tuple) and len(batch) == 2 and batch._fields == ("image", "label")
    assert batch.image is x and batch["label"] is y and batch[0] is x
    assert batch._asdict()["image"] is x
    assert len(batch.ids) == len(batch.keys) == len(batch.valid) == batch.size == 8
    with pytest.raises(AttributeError, match="its fields are image, label"):
        batch.mask
    with pytest.raises(KeyError):
        batch["mask"]


def test_a_batch_survives_pickling_and_rebuilding_from_its_fields(photos):
    batch = next(iter(penstock.Loader(photos, CROP, 8)))
    again = pickle.loads(pickle.dumps(batch))
    assert again._fields == batch._fields and (again.image == batch.image).all()
    rebuilt = type(batch)(*batch)
    assert rebuilt.label is batch.label
    with pytest.raises(AttributeError, match="put together from fields alone"):
        rebuilt.ids


@pytest.mark.parametrize("dtype", ["u8", "f16", "bf16", "f32"])
def test_device_cpu_gives_tensors_over_the_same_memory(photos, dtype):
    text = "decode | center_crop(16)" + (" | to(u8, nchw)" if dtype == "u8" else f" | normalize(imagenet) | to({dtype})")
    array = next(iter(penstock.Loader(photos, text, 8, shuffle=False)))
    tensor = next(iter(penstock.Loader(photos, text, 8, shuffle=False, device="cpu")))
    x, y = tensor
    assert x.data_ptr() >= tensor.raw.address and x.data_ptr() < tensor.raw.address + tensor.raw.nbytes
    assert y.dtype is torch.int64 and tensor.valid.dtype is torch.bool and tensor.ids.tolist() == list(range(8))
    bits = x.view(torch.int16).numpy().view(numpy.uint16) if dtype == "bf16" else x.numpy()
    assert (bits == array.image).all()
    assert x.dtype is {"u8": torch.uint8, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[dtype]


def test_a_tensor_keeps_its_batch(photos):
    loader = penstock.Loader(photos, CROP, 4, shuffle=False, device="cpu", ready_depth=1)
    kept = [batch.image for batch in loader]
    loader.close()
    again = [batch.image.copy() for batch in penstock.Loader(photos, CROP, 4, shuffle=False)]
    assert all((a.numpy() == b).all() for a, b in zip(kept, again, strict=True))


def test_pipelines_from_objects_print_as_text(photos):
    built = ops.decode() | ops.random_resized_crop(16, scale=(0.5, 1.0)) | ops.hflip(p=0.25) | ops.normalize("imagenet")
    text = "decode | random_resized_crop(16, scale=(0.5, 1.0)) | hflip(p=0.25) | normalize(imagenet)"
    assert str(built) == text
    assert str("decode" | ops.hflip()) == "decode | hflip"
    assert str(ops.decode().also("mask", ops.to("i64"))) == "decode ; mask: to(i64)"
    assert penstock.check_pipeline(built) == penstock.check_pipeline(text)
    pieces = [ops.decode(), "random_resized_crop(16, scale=(0.5, 1.0))", ops.hflip(p=0.25), ops.normalize("imagenet")]
    first, second = (next(iter(penstock.Loader(photos, p, 8))) for p in (built, pieces))
    assert (first.image == second.image).all()


def test_ops_come_from_the_engine_with_their_help():
    assert {"decode", "resize", "normalize"} <= set(ops.names()) and "resize" in dir(ops)
    assert "shorter side" in ops.resize.__doc__
    with pytest.raises(AttributeError, match="there is no op 'resise'"):
        ops.resise


def test_two_functions_of_one_name_are_refused():
    with pytest.raises(penstock.SettingError, match="name="):
        penstock.python(lambda x: x, name="f") | penstock.python(lambda x: x, name="f")


def test_evaluation_is_in_order_whole_and_padded(photos):
    loader = penstock.Loader(photos, CROP, 7, train=False)
    batches = list(loader)
    assert {batch.size for batch in batches} == {7}
    assert [int(i) for b in batches for i, ok in zip(b.ids, b.valid) if ok] == list(range(60))
    with pytest.raises(penstock.SettingError, match="train=False"):
        penstock.Loader(photos, CROP, 7, train=False, shuffle=True)


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_evaluation_over_ranks_counts_each_sample_once(photos, world):
    subset = range(42)
    seen, right = [], 0
    for rank in range(world):
        for batch in penstock.Loader(photos, CROP, 4, train=False, subset=subset, rank=rank, world=world):
            seen += [int(i) for i, ok in zip(batch.ids, batch.valid) if ok]
            right += int((batch.valid & (batch.label == batch.ids % 3)).sum())
    assert sorted(seen) == list(subset)
    assert right == sum(label == i % 3 for i, label in ((i, i // 20) for i in subset))


def test_ranks_come_from_the_environment(photos, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    loader = penstock.Loader(photos, CROP, 4)
    assert (loader.ranks.rank, loader.ranks.world, loader.ranks.source) == (1, 3, "environment")
    assert ids_of(loader) == ids_of(penstock.Loader(photos, CROP, 4, rank=1, world=3))
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(penstock.SettingError, match="RANK=3 of WORLD_SIZE=3"):
        penstock.Loader(photos, CROP, 4)


def test_ranks_of_one_machine_share_it(photos, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    whole = penstock.settings()
    share = penstock.Loader(photos, CROP, 4, rank=0, world=4).engine.settings
    assert share["workers"] == max(1, whole["cpus"] // 4) and share["memory"] <= whole["memory"] // 4 + 4096


def test_two_gloo_ranks_get_each_sample_once(photos, tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(
        "import sys, torch, penstock, torch.distributed as dist\n"
        f"dist.init_process_group('gloo', init_method='file://{tmp_path}/meet', rank=int(sys.argv[1]), world_size=2)\n"
        f"loader = penstock.Loader({str(photos)!r}, {CROP!r}, 7, device='cpu')\n"
        "ids = [int(i) for b in loader for i, ok in zip(b.ids, b.valid) if ok]\n"
        "both = [None, None]\n"
        "dist.all_gather_object(both, ids)\n"
        "assert sorted(both[0] + both[1]) == list(range(60)), both\n"
        "print(loader.ranks.source, len(loader))\n"
    )
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    env["GLOO_SOCKET_IFNAME"] = "lo"  # whatever the machine's name stands for
    ranks = [
        subprocess.Popen([sys.executable, str(script), str(rank)], env=env, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=90)[0].split() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert said == [["torch.distributed", "5"]] * 2


def test_transform_and_collate_are_the_users_own(photos):
    plain = next(iter(penstock.Loader(photos, CROP, 6, shuffle=False)))
    halves = next(iter(penstock.Loader(photos, CROP, 6, shuffle=False, transform=lambda s: (s.image[:8], s.label))))
    assert halves[0].shape == (6, 8, 16, 3) and (halves[0] == plain.image[:, :8]).all()
    lists = next(iter(penstock.Loader(photos, CROP, 6, shuffle=False, collate=lambda s: [int(one.label) for one in s])))
    assert lists == plain.label.tolist()
    tensors = next(iter(penstock.Loader(photos, CROP, 6, device="cpu", transform=lambda s: s.image.float())))
    assert tensors.shape == (6, 16, 16, 3) and tensors.dtype is torch.float32


def test_stats_say_in_one_sentence_what_bounds_the_run(photos):
    loader = penstock.Loader(photos, CROP, 8)
    assert loader.stats()["bound"].startswith("starting: no batch yet")
    for _ in loader:
        pass
    stats = loader.stats()
    assert stats["bound"] == stats["verdict"]["text"] and 0 <= stats["wait_share"] <= 1 and stats["elapsed_s"] > 0
    text = loader.explain()
    assert "60 samples, folder" in text and "random_resized_crop" in text and stats["bound"].split(":")[0] in text


class FarAway:
    """Pictures that take their time to come."""

    def __init__(self, photos):
        self.bytes = next(path for path in sorted(photos.rglob("*")) if path.suffix in (".jpg", ".png")).read_bytes()

    def __len__(self):
        return 120

    def read(self, i):
        threading.Event().wait(0.01)
        return self.bytes, i


def test_reading_that_bounds_the_run_is_named_and_is_no_work_of_the_workers(photos):
    loader = penstock.Loader(FarAway(photos), CROP, 8, workers=2, cache=0)
    for _ in range(10):
        for _ in loader:
            pass
    stats = loader.stats()
    assert 0 <= stats["worker_share"] <= 1 and stats["read_away_s"] >= 120 * 0.01
    assert stats["verdict"]["kind"] == "source" and "for their bytes" in stats["bound"], stats["bound"]
    assert stats["stages"][0][0] == "read" and stats["stages"][0][2] == pytest.approx(stats["read_away_s"])


@pytest.mark.parametrize(
    "value, bytes", [(4096, 4096), ("64M", 64 << 20), ("1.5G", 3 << 29), ("64 MiB", 64 << 20), ("2kb", 2048)]
)
def test_amounts_of_memory(value, bytes):
    from penstock._sizes import as_bytes

    assert as_bytes(value, "memory") == bytes


@pytest.mark.parametrize("value", [-1, "much", "1X", None, True])
def test_wrong_amounts_are_refused(value):
    from penstock._sizes import as_bytes

    with pytest.raises(penstock.SettingError, match="memory="):
        as_bytes(value, "memory")


def test_state_loads_with_weights_only(photos, tmp_path):
    loader = penstock.Loader(photos, CROP, 8)
    turn = iter(loader)
    next(turn)
    torch.save(loader.state_dict(), tmp_path / "state.pt")
    resumed = penstock.Loader(photos, CROP, 8)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", **{"weights_only": True}))
    assert ids_of(resumed) == [int(i) for batch in turn for i in batch.ids]
