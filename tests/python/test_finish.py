# SPDX-License-Identifier: Apache-2.0
"""What a GPU does at the end of a pipeline, done here on the CPU: the same numbers as the engine's own."""

import penstock
import pytest
from conftest import CROP
from penstock import _penstock

torch = pytest.importorskip("torch")


def finished(photos, text, ends="short", channels_last=False):
    """(what the engine gives, what torch makes of its raw batches), batch by batch."""
    from penstock._device import tensor_over
    from penstock._finish import Finish, mixed

    loader = penstock.Loader(photos, text, 7, seed=5, device="cpu", ends=ends)
    raw_job = _penstock.Job(loader.engine, loader.dataset.raw, text, 7, seed=5, raw_finish=True, ends=ends)
    finishes = {n: Finish(f, torch.device("cpu"), channels_last) for n, f in raw_job.finishes().items()}
    turn = raw_job.begin(0)
    for batch in loader:
        raw = raw_job.next(turn)
        values = {name: tensor_over(raw.view(name)) for name in ("image", "label")}
        assert values["image"].dtype is torch.uint8
        values["image"] = finishes["image"](values["image"])
        yield batch, mixed(raw, values, finishes)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("end", ["normalize(imagenet)", "normalize(half) | to(f16)", "to(f32, nhwc)", "to(u8, nchw)"])
def test_finish_gives_the_engine_s_numbers(photos, end, channels_last):
    for batch, values in finished(photos, f"{CROP} | {end}", channels_last=channels_last):
        assert values["image"].dtype is batch.image.dtype and values["image"].shape == batch.image.shape
        assert (values["image"].double() - batch.image.double()).abs().max() <= 1e-6
        assert values["image"].is_contiguous() != (channels_last and "nhwc" not in end)


@pytest.mark.parametrize("ends", ["short", "pad"])
@pytest.mark.parametrize("op", ["mixup(0.4)", "cutmix", "choice(1: mixup(0.8), 1: cutmix)", "mixup(p=0)"])
@pytest.mark.parametrize("end", ["normalize(imagenet)", "normalize(imagenet) | to(f32, nhwc)"])
def test_batch_ops_give_the_engine_s_numbers(photos, end, op, ends):
    for batch, values in finished(photos, f"{CROP} | {end} || {op}", ends):
        assert (values["image"] - batch.image).abs().max() <= 1e-6
        assert (values["label"] - batch.label).abs().max() <= 1e-6


@pytest.mark.parametrize("end", ["normalize(imagenet)", "normalize(half) | to(f16, nhwc)"])
def test_padding_is_zero_after_finish(photos, end):
    from penstock._batch import as_array
    from penstock._device import tensor_over
    from penstock._finish import Finish, clear_padding

    text = f"decode | resize(24) | {end}"
    loader = penstock.Loader(photos, text, 7, seed=5, device="cpu", ends="short", fields={"image": "padded"})
    raw_job = _penstock.Job(
        loader.engine, loader.dataset.raw, text, 7, seed=5, raw_finish=True, ends="short", fields="image=padded"
    )
    finish = Finish(raw_job.finishes()["image"], torch.device("cpu"), False)
    turn = raw_job.begin(0)
    for batch in loader:
        raw = raw_job.next(turn)
        image = clear_padding(finish(tensor_over(raw.view("image"))), as_array(raw.shapes("image")), finish.nchw)
        assert (image.double() - batch.image.double()).abs().max() <= 1e-6
        assert (batch.image == 0).any()


def test_states_go_both_ways_between_finished_and_raw_jobs(photos):
    text = f"{CROP} | normalize(imagenet)"
    loader = penstock.Loader(photos, text, 7, seed=5)
    next(iter(loader))
    raw_job = _penstock.Job(loader.engine, loader.dataset.raw, text, 7, seed=5, raw_finish=True)
    from penstock._loader import state_to_bytes

    raw_job.load_state(state_to_bytes(loader.state_dict()))
    assert raw_job.next(raw_job.begin(None)).step == 1
