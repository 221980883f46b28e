# SPDX-License-Identifier: Apache-2.0
"""The Python paths under the loader: a native prefix, workers that persist, iterables, ready order, state."""

import pickle
import time

import numpy
import pytest
import torch
import torch.utils.data
from dropin_tools import PARTLY, assert_equal_runs, assert_same, folder, run, seed_all, until_full
from torchvision import transforms

from penstock.torch import DataLoader


def negative(image):
    """A step that nobody knows, on a PIL picture."""
    assert image.mode == "RGB"
    return image.point(lambda value: 255 - value)


def halved(tensor):
    return tensor / 2


def steps(*middle):
    return transforms.Compose([transforms.Resize(18), transforms.CenterCrop(16), *middle])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "transform",
    [
        steps(negative, transforms.ToTensor()),
        steps(transforms.ToTensor(), halved, transforms.Normalize([0.5], [0.25])),
        steps(transforms.PILToTensor(), halved),
        steps(transforms.ToTensor(), transforms.Normalize([0.5], [0.25]), halved),
    ],
    ids=str,
)
def test_what_is_left_gets_what_it_expects(photos, transform, workers):
    dataset = folder(photos, transform, target_transform=str)
    subset = torch.utils.data.Subset(dataset, range(3, 40))
    loader = assert_equal_runs(lambda kind: kind(subset, 8, True, num_workers=workers), path=PARTLY)
    assert "resize(18)" in loader.explain()


def brightness(image):
    return numpy.asarray(image).mean()


def waits_if_bright(image):
    time.sleep(0.03 if brightness(image) > 128 else 0.0002)
    return image


@pytest.mark.parametrize("native", ["auto", False])
def test_a_sample_that_was_put_aside_is_the_same(photos, native):
    """Slow ones in a run, put aside between torchvision's transforms, on both ways through workers."""
    slow_part = [waits_if_bright] * 4 + [transforms.RandomVerticalFlip(), transforms.ColorJitter(0.4)]
    dataset = folder(photos, steps(transforms.RandomHorizontalFlip(), *slow_part, transforms.ToTensor()))
    bright = [brightness(steps()(dataset.loader(path))) for path, _ in dataset.samples]
    fast, slow = [at for at in range(60) if bright[at] < 120], [at for at in range(60) if bright[at] > 136]
    assert fast and slow
    order = (fast * 100)[:96] + (slow * 12)[:12] + (fast * 100)[:80]
    runs = []
    for without in ((), "lanes"):
        options = {"sampler": order, "num_workers": 2, "in_order": False, "seed": 3, "without": without}
        loader, rows = DataLoader(dataset, 4, native=native, **options), []
        for x, _ in loader:
            rows += x
            if not without and len(rows) == 80:
                until_full(loader._running().runner)
            time.sleep(0.01)
        assert loader.stats()["path"] == ("python" if native is False else PARTLY)
        assert (loader.stats()["slow_parked"] > 0) == (not without)
        assert sorted(loader._progress.ready.done) == list(range(len(order)))
        runs.append(torch.stack([row for _, row in sorted(zip(loader._progress.ready.done, rows), key=lambda p: p[0])]))
    assert torch.equal(*runs)


def test_a_prefix_that_draws_follows_the_seed_and_not_the_workers(photos):
    random = [transforms.RandomResizedCrop(16), transforms.RandomHorizontalFlip(), negative, transforms.ToTensor()]
    dataset = folder(photos, transforms.Compose(random))
    results = []
    for workers, seed in ((1, 4), (2, 4), (1, 5)):
        options = {"sampler": range(12), "num_workers": workers}
        loader, batches, _ = run(DataLoader, lambda kind: kind(dataset, 8, **options), seed=seed)
        results.append(torch.cat([x for x, _ in batches]))
    assert loader.stats()["path"] == PARTLY
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
    assert not torch.equal(results[0][:12], results[0][12:]), "the second epoch repeats the first"


@pytest.mark.skipif(PARTLY != "prefix", reason="this build does no single samples")
def test_prefix_goes_to_another_process_without_its_compiled_part(photos):
    from penstock.torch import _plan, _prefix

    loader = DataLoader(folder(photos, steps(negative, transforms.ToTensor())), 4)
    plan = _plan.make(loader, None)
    prefix = _prefix.Prefix(loader.dataset, plan.flat, plan.lowered)
    expected = prefix(7)
    assert_same(pickle.loads(pickle.dumps(prefix))(7), expected)
    assert_same(expected, loader.dataset[7])
    with pytest.raises(IndexError):
        prefix(60)


def test_spawned_workers(photos):
    dataset = folder(photos, steps(negative, transforms.ToTensor()))
    loader = DataLoader(dataset, 30, num_workers=1, multiprocessing_context="spawn")
    assert_same(list(loader), list(torch.utils.data.DataLoader(dataset, 30)))


class Noise(torch.utils.data.Dataset):
    """Draws from every generator that workers seed."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.rand(2), numpy.random.rand(), index


@pytest.mark.parametrize("persistent", [False, True])
def test_random_dataset_resumes_exactly(persistent):
    seed_all(3)
    loader = DataLoader(Noise(), 5, True, num_workers=2, persistent_workers=persistent)
    list(loader)
    whole = []
    for batch in loader:
        whole.append(batch)
        if len(whole) == 2:
            state = loader.state_dict()
    seed_all(50)
    again = DataLoader(Noise(), 5, True, num_workers=1, persistent_workers=persistent)
    again.load_state_dict(state)
    assert_same(list(again), whole[2:])
    assert len({x for batch in whole for x in batch[1].tolist()}) == 24


@pytest.mark.parametrize("sampler", [None, [[0, 1], [2], [3, 4, 5], [6, 7]]])
def test_ready_order_of_a_python_dataset_resumes(sampler):
    count = 24 if sampler is None else 8

    def make(workers):
        if sampler is None:
            return DataLoader(Noise(), 5, True, num_workers=workers, in_order=False, seed=1)
        return DataLoader(Noise(), batch_sampler=sampler, num_workers=workers, in_order=False)

    loader, seen = make(2), []
    for at, (_, _, index) in enumerate(loader):
        seen += index.tolist()
        if at == 1:
            break
    state = loader.state_dict()
    for workers in (2, 1, 0):
        again, rest = make(workers), []
        again.load_state_dict(state)
        batches = iter(again)
        rest += next(batches)[2].tolist()
        third = make(1)
        third.load_state_dict(again.state_dict())
        last = [index for _, _, indices in third for index in indices.tolist()]
        assert sorted(seen + rest + last) == list(range(count))


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        begin, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(torch.arange(begin, 30, step))


@pytest.mark.parametrize("workers", [0, 2])
def test_iterable_resumes(workers):
    loader = DataLoader(Stream(), 4, num_workers=workers)
    batches = iter(loader)
    next(batches), next(batches)
    state = loader.state_dict()
    again = DataLoader(Stream(), 4, num_workers=workers)
    again.load_state_dict(state)
    assert_same(list(again), list(batches))
    with pytest.raises(Exception, match="num_workers"):
        DataLoader(Stream(), 4, num_workers=workers + 1).load_state_dict(state)


def test_persistent_workers_serve_epoch_after_epoch(photos):
    dataset = folder(photos, steps(negative, transforms.ToTensor()))
    assert_equal_runs(
        lambda kind: kind(dataset, 8, True, num_workers=2, persistent_workers=True), path=PARTLY, epochs=3
    )


def test_error_in_user_code_of_this_process_names_the_sample():
    class Failing(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return {3: 1 / (index - 3)}[3]

    with pytest.raises(ZeroDivisionError, match="^float division by zero|^division by zero") as caught:
        list(DataLoader(Failing(), 2))
    assert caught.value.__notes__ == ["in sample index 3"]


def test_error_in_user_code_names_it(photos):
    def breaks(tensor):
        raise ZeroDivisionError("in the user's transform")

    loader = DataLoader(folder(photos, steps(transforms.ToTensor(), breaks)), 8, num_workers=1)
    with pytest.raises(ZeroDivisionError, match="breaks"):
        list(loader)


# ---- limits in time, on the native path ------------------------------------------------------------------------------


def test_native_timeout(photos):
    """The first batch cannot be there in a nanosecond, unless the loop was kept from asking. Later ones come all the same."""

    def times_out():
        loader = DataLoader(folder(photos), 60, num_workers=1, timeout=1e-9)
        iterator = iter(loader)
        assert loader.stats()["path"] == "native"
        try:
            next(iterator)
            return False
        except RuntimeError as why:
            assert "DataLoader timed out after 1e-09 seconds" in str(why)
        loader.timeout = 60
        assert len(next(iterator)[1]) == 60
        return True

    assert any(times_out() for _ in range(20))


def test_pin_memory_without_an_accelerator_warns_as_torch_does(photos):
    if torch.cuda.is_available():
        pytest.skip("there is an accelerator")
    with pytest.warns(UserWarning, match="no accelerator is found"):
        batch = next(iter(DataLoader(folder(photos), 4, pin_memory=True)))
    assert not batch[0].is_pinned()
