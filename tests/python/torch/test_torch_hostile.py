# SPDX-License-Identifier: Apache-2.0
"""Datasets that look known and are not: each runs as it was written, and its batches equal torch's."""

import os
import subprocess
import sys
import textwrap

import PIL.Image
import pytest
import torch
import torch.utils.data
from dropin_tools import PARTLY, assert_equal_runs, assert_same, evaluation, folder
from torchvision import datasets, transforms

import penstock
from penstock.torch import DataLoader


class WithPath(datasets.ImageFolder):
    """A subclass with its own __getitem__."""

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return image, label, os.path.basename(self.samples[index][0])


class Squeezed(transforms.Resize):
    """A subclassed transform."""

    def forward(self, img):
        return super().forward(img).transpose(PIL.Image.FLIP_TOP_BOTTOM)


def invert(x):
    return 1 - x


def test_subclass_with_its_own_getitem(photos):
    dataset = WithPath(str(photos), evaluation())
    loader = assert_equal_runs(lambda kind: kind(dataset, 8, True, num_workers=1), path="python")
    assert "WithPath" in loader.explain()


def test_subclassed_transform(photos):
    dataset = folder(photos, transforms.Compose([Squeezed((16, 16)), transforms.ToTensor()]))
    loader = assert_equal_runs(lambda kind: kind(dataset, 8), path="python")
    assert "Squeezed" in loader.explain()


@pytest.mark.parametrize("workers", [0, 1])
def test_lambda_in_the_middle(photos, workers):
    steps = [transforms.Resize((20, 16)), transforms.ToTensor(), transforms.Lambda(invert)]
    dataset = folder(photos, transforms.Compose([*steps, transforms.Normalize([0.5], [0.5])]))
    loader = assert_equal_runs(lambda kind: kind(dataset, 8, True, num_workers=workers), path=PARTLY)
    assert "invert" in loader.explain()


def test_own_loader(photos):
    dataset = folder(photos, loader=lambda path: datasets.folder.pil_loader(path).convert("L").convert("RGB"))
    loader = assert_equal_runs(lambda kind: kind(dataset, 8), path="python")
    assert "loader" in loader.explain()


def test_getitem_patched_on_the_class(photos, monkeypatch):
    plain = datasets.folder.DatasetFolder.__getitem__
    monkeypatch.setattr(datasets.folder.DatasetFolder, "__getitem__", lambda self, i: (plain(self, i)[0] * 2, 5))
    assert_equal_runs(lambda kind: kind(folder(photos), 8), path="python")


def test_subset_of_the_users_own(photos):
    class Doubled(torch.utils.data.Subset):
        def __getitem__(self, index):
            return super().__getitem__(index // 2)

        def __getitems__(self, indices):
            return [self[index] for index in indices]

    dataset = Doubled(folder(photos), range(9))
    assert_equal_runs(lambda kind: kind(dataset, 3), path="python")


def test_dict_samples(photos):
    class Dicts(torch.utils.data.Dataset):
        def __init__(self):
            self.inner = folder(photos)

        def __len__(self):
            return len(self.inner)

        def __getitem__(self, index):
            image, label = self.inner[index]
            return {"image": image, "meta": {"label": label, "name": str(index)}}

    assert_equal_runs(lambda kind: kind(Dicts(), 8, True), path="python")


def test_ragged_samples_with_a_collate(photos):
    class Ragged(torch.utils.data.Dataset):
        def __len__(self):
            return 13

        def __getitem__(self, index):
            return torch.arange(index)

    dataset = Ragged()
    assert_equal_runs(lambda kind: kind(dataset, 4, collate_fn=list), path="python")


class Sharded(torch.utils.data.IterableDataset):
    """An iterable that shards itself."""

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        rank, world = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(torch.arange(rank, 20, world))


@pytest.mark.parametrize("workers", [0, 2])
def test_iterable_that_shards_itself(workers):
    expected = list(torch.utils.data.DataLoader(Sharded(), 3, num_workers=workers))
    loader = DataLoader(Sharded(), 3, num_workers=workers)
    assert_same(list(loader), expected)
    assert "iterable" in loader.explain()


def test_no_auto_collation(photos):
    dataset = folder(photos)
    assert_equal_runs(lambda kind: kind(dataset, None, True), path=PARTLY, epochs=1)


def test_sampler_without_a_length(photos):
    class Endless:
        def __iter__(self):
            while True:
                yield from (5, 4, 3)

    dataset = folder(photos)
    ours, theirs = (iter(kind(dataset, 2, sampler=Endless())) for kind in (DataLoader, torch.utils.data.DataLoader))
    for _ in range(4):
        assert_same(next(ours), next(theirs))


def test_sampler_out_of_range_fails_where_torch_fails(photos):
    for kind in (torch.utils.data.DataLoader, DataLoader):
        batches = iter(kind(folder(photos), 2, sampler=[0, 1, 2, 60]))
        next(batches)
        with pytest.raises(IndexError):
            next(batches)


def test_keys_that_are_no_numbers():
    dataset = {"a": 1, "b": 2, "c": 3}
    assert_equal_runs(lambda kind: kind(dataset, 2, sampler=["c", "a", "b"]), path="python")


# ---- files ----------------------------------------------------------------------------------------------------------


def _first_error(kind, dataset):
    with pytest.raises(Exception) as caught:
        list(kind(dataset, 4))
    return caught.value


def test_missing_file_raises_as_in_torch(own_photos):
    dataset = folder(own_photos)
    os.unlink(dataset.samples[6][0])
    theirs, ours = (_first_error(kind, dataset) for kind in (torch.utils.data.DataLoader, DataLoader))
    assert type(ours) is type(theirs) is FileNotFoundError


def test_file_that_vanishes_while_in_use(own_photos):
    dataset = folder(own_photos)
    loader = DataLoader(dataset, 4)
    assert len(list(loader)) == 4
    os.unlink(dataset.samples[6][0])
    with pytest.raises(FileNotFoundError):
        list(loader)
    assert loader.stats()["path"] == "native"


@pytest.mark.parametrize("damage", ["empty", "text", "cut"])
def test_damaged_file_raises_as_in_torch(own_photos, damage):
    dataset = folder(own_photos)
    path = dataset.samples[6][0]
    whole = open(path, "rb").read()
    with open(path, "wb") as file:
        file.write({"empty": b"", "text": b"no picture at all" * 9, "cut": whole[: len(whole) // 3]}[damage])
    loader = DataLoader(dataset, 4)
    theirs, ours = _first_error(torch.utils.data.DataLoader, dataset), _first_error(lambda *args: loader, dataset)
    assert type(ours) is type(theirs)
    assert isinstance(ours.__cause__, penstock.DataError)


def test_file_that_only_pillow_reads_is_still_delivered(own_photos):
    """A BMP that is called .jpg: one sample in Python, the others natively."""
    dataset = folder(own_photos)
    for at in (0, 6, 14):
        PIL.Image.open(dataset.samples[at][0]).save(dataset.samples[at][0], format="BMP")
    loader = assert_equal_runs(lambda kind: kind(dataset, 4, True), epochs=2)
    assert "3 samples that only Pillow reads" in loader.explain()
    assert_equal_runs(lambda kind: kind(dataset, batch_sampler=[[1, 6], [6], [0, 2, 3], [14, 4]]), epochs=2)


def test_skip_offers_a_file_to_pillow_first(own_photos):
    dataset = folder(own_photos)
    PIL.Image.open(dataset.samples[2][0]).save(dataset.samples[2][0], format="BMP")
    for at in (6, 13):
        open(dataset.samples[at][0], "wb").write(b"no picture")
    good = torch.utils.data.Subset(dataset, [i for i in range(15) if i not in (6, 13)])
    expected = list(torch.utils.data.DataLoader(good, 4))
    loader = DataLoader(dataset, 4, on_error="skip:2")
    assert_same(list(loader), expected)
    assert_same(list(loader), expected)
    assert loader.stats()["skipped"] == 2 and loader.stats()["path"] == "native"
    with pytest.raises(penstock.DataError, match="2 samples are bad"):
        list(DataLoader(dataset, 4, on_error="skip:1"))


def test_a_state_knows_what_was_skipped(own_photos):
    dataset = folder(own_photos)
    for at in (1, 6):
        open(dataset.samples[at][0], "wb").write(b"no picture")

    def make():
        return DataLoader(dataset, 3, shuffle=True, seed=1, on_error="skip:2")

    whole = list(make())
    for stop in range(1, len(whole)):
        loader = make()
        iterator = iter(loader)
        for _ in range(stop):
            next(iterator)
        again = make()
        again.load_state_dict(loader.state_dict())
        assert_same(list(again), whole[stop:])


def test_a_few_files_of_other_formats_are_read_by_pillow(own_photos):
    PIL.Image.new("RGB", (30, 30), (1, 2, 3)).save(own_photos / "ant" / "zzz.bmp")
    PIL.Image.new("RGB", (30, 30), (9, 2, 3)).save(own_photos / "bee" / "000.tiff")
    loader = assert_equal_runs(lambda kind: kind(folder(own_photos), 4, shuffle=True))
    assert "2 samples that only Pillow reads" in loader.explain()
    unordered = DataLoader(folder(own_photos), 4, in_order=False, num_workers=2)
    assert sorted(y for _, labels in unordered for y in labels.tolist()) == sorted(unordered.dataset.targets)


def test_many_files_of_other_formats_run_as_they_are(own_photos):
    for at in range(17):
        PIL.Image.new("RGB", (30, 30), (at, 2, 3)).save(own_photos / "ant" / f"zz{at}.bmp")
    loader = assert_equal_runs(lambda kind: kind(folder(own_photos), 4), path=PARTLY, epochs=1)
    assert "17 of 32 files are such as only Pillow reads" in loader.explain()


def test_files_that_turn_out_to_be_for_pillow_leave_the_native_way_when_they_are_many(own_photos):
    dataset = folder(own_photos)
    dataset.samples = dataset.imgs = dataset.samples * 2
    for path, _ in dataset.samples[:9]:
        PIL.Image.open(path).save(path, format="BMP")
    loader = DataLoader(dataset, 4)
    assert_same(list(loader), list(torch.utils.data.DataLoader(dataset, 4)))
    assert loader.stats()["path"] == "native"
    assert_same(list(loader), list(torch.utils.data.DataLoader(dataset, 4)))
    assert loader.stats()["path"] == PARTLY and "18 of 30 files" in loader.explain()


def test_links_out_of_the_folder(own_photos, tmp_path):
    other = tmp_path / "linked" / "x"
    other.mkdir(parents=True)
    for at, path in enumerate(sorted(own_photos.glob("*/*.jpg"))):
        os.symlink(path, other / f"{at}.jpg")
    assert_equal_runs(lambda kind: kind(folder(other.parent), 4))


def test_a_list_from_everywhere(own_photos, tmp_path, monkeypatch):
    """Files outside the root, a file twice, relative paths, a link as a folder, path objects."""
    dataset = folder(own_photos)
    away = tmp_path / "away"
    away.mkdir()
    for at in range(3):
        os.rename(dataset.samples[at][0], away / f"{at}.jpg")
    os.symlink(away, tmp_path / "link")
    monkeypatch.chdir(tmp_path)
    dataset.samples[0] = (str(away / "0.jpg"), 0)
    dataset.samples[1] = (os.path.join("away", "1.jpg"), 2)
    dataset.samples[2] = (tmp_path / "link" / "2.jpg", -3)
    dataset.samples.append(dataset.samples[5])
    assert_equal_runs(lambda kind: kind(dataset, 4, shuffle=True))


def test_labels_that_are_no_whole_numbers(own_photos):
    dataset = folder(own_photos)
    dataset.samples = [(path, float(label) / 2) for path, label in dataset.samples]
    assert_equal_runs(lambda kind: kind(dataset, 4, shuffle=True))
    dataset.samples = [(path, f"class {label}") for path, label in dataset.samples]
    assert_equal_runs(lambda kind: kind(dataset, 4))


# ---- scripts --------------------------------------------------------------------------------------------------------


def _python(code: str, **environment: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    env = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_class_of_a_notebook_and_no_main_guard(photos):
    """Everything is defined in __main__, whose code runs again in no worker."""
    out = _python(f"""
        import torch, torch.utils.data
        from penstock.torch import DataLoader
        print("started")
        class Cells(torch.utils.data.Dataset):
            def __len__(self): return 10
            def __getitem__(self, i): return torch.full((2,), float(i)), i
        print([y.tolist() for x, y in DataLoader(Cells(), 4, num_workers=2)])
        from torchvision import datasets, transforms as T
        d = datasets.ImageFolder({str(photos)!r}, T.Compose([T.CenterCrop(8), T.ToTensor()]))
        print(sum(len(y) for x, y in DataLoader(d, 8, num_workers=2)))
    """)
    assert out.split("\n")[:3] == ["started", "[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]", "60"]


def test_import_of_penstock_does_not_import_torch():
    assert _python("import sys, penstock; print('torch' in sys.modules)").strip() == "False"


def test_use_in_a_forked_child(photos):
    dataset = folder(photos)
    loader = DataLoader(dataset, 8)
    assert len(list(loader)) == 8
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if sum(len(y) for _, y in loader) == 60 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
