# SPDX-License-Identifier: Apache-2.0
"""Two real ranks over gloo: each sample once, evaluation by one rank alone, states saved by rank 0 alone."""

import multiprocessing
import os
import pickle

import penstock
import pytest
import torch
import torch.distributed
from penstock.torch import DataLoader
from torch.utils.data import Subset
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms
from torchvision.datasets import ImageFolder

CROP = "decode | random_resized_crop(16) | hflip"
COUNT, WORLD = 60, 2


def together(check, tmp_path, photos):
    """What check(rank, photos) gives on each rank, of processes that really met."""

    def main(rank):
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # whatever the machine's name stands for
        torch.distributed.init_process_group(
            "gloo", rank=rank, world_size=WORLD, init_method=f"file://{tmp_path}/meeting"
        )
        got = check(rank, photos)
        (tmp_path / f"{rank}.pickle").write_bytes(pickle.dumps(got))
        torch.distributed.barrier()

    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=main, args=(rank,)) for rank in range(WORLD)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60)
        process.kill()  # one that is stuck would keep the output open
    assert [process.exitcode for process in ranks] == [0] * WORLD
    return [pickle.loads((tmp_path / f"{rank}.pickle").read_bytes()) for rank in range(WORLD)]


def of_rank_0(thing):
    box = [thing]
    torch.distributed.broadcast_object_list(box, 0)
    return box[0]


def batches(loader):
    return [(batch.ids.tolist(), batch.valid.tolist(), batch.image.tobytes()) for batch in loader]


def valid_ids(ranks):
    return sorted(i for rank in ranks for ids, valid, _ in rank for i, is_real in zip(ids, valid) if is_real)


def folder(photos):
    return ImageFolder(photos, transforms.Compose([transforms.CenterCrop(16), transforms.ToTensor()]))


def numbers(loader):
    """Each batch as a list of whole numbers that tell its pictures apart."""
    return [(image * 255).round().long().sum(dim=(1, 2, 3)).tolist() for image, _ in loader]


@pytest.mark.parametrize("options", [{"seed": 3}, {"train": False}])
def test_each_sample_once_over_the_ranks_that_met(photos, tmp_path, options):
    got = together(lambda rank, photos: batches(penstock.Loader(photos, CROP, 7, **options)), tmp_path, photos)
    assert valid_ids(got) == list(range(COUNT))
    assert len(got[0]) == len(got[1])


def test_rank_0_saves_for_all(photos, tmp_path):
    """Inside the loop and after break; what was padding without a resume is the same padding with one."""

    def check(rank, photos):
        loader = penstock.Loader(photos, CROP, 4, seed=9)
        turn = iter(loader)
        for _ in range(3):
            next(turn)
        state = of_rank_0(loader.state_dict())
        again = penstock.Loader(photos, CROP, 4, seed=9)
        again.load_state_dict(state)
        for step, _ in enumerate(again):
            if step == 1:
                break
        last = penstock.Loader(photos, CROP, 4, seed=9)
        last.load_state_dict(of_rank_0(again.state_dict()))
        whole = batches(penstock.Loader(photos, CROP, 4, seed=9))
        return batches(turn) == whole[3:], batches(last) == whole[5:], len(whole)

    assert together(check, tmp_path, photos) == [(True, True, 8)] * WORLD


def test_one_ranks_state_goes_on_with_another_world(photos, tmp_path):
    def check(rank, photos):
        loader = penstock.Loader(photos, CROP, 4, seed=9)
        got = [batch.ids.tolist() for _, batch in zip(range(3), loader)]
        return got, loader.state_dict()

    ranks = together(check, tmp_path, photos)
    begun = [i for got, _ in ranks for ids in got for i in ids]
    for world in (1, 3):
        rest = []
        for rank in range(world):
            loader = penstock.Loader(photos, CROP, 4, seed=9, rank=rank, world=world)
            loader.load_state_dict(ranks[1][1])
            rest.append(batches(loader))
        assert sorted(begun + valid_ids(rest)) == list(range(COUNT))


def test_in_ready_order_one_ranks_state_is_refused_with_the_remedy(photos, tmp_path):
    def check(rank, photos):
        def fresh():
            return penstock.Loader(photos, CROP, 4, seed=9, order="ready")

        loader = fresh()
        got = [batch.ids.tolist() for _, batch in zip(range(3), loader)]
        states = [None] * WORLD
        torch.distributed.all_gather_object(states, loader.state_dict())
        with pytest.raises(penstock.StateError, match=r"rank 0 of 2 alone.*penstock\.merge_states"):
            fresh().load_state_dict(states[0])
        with pytest.raises(penstock.StateError, match="missing: rank 1"):
            penstock.merge_states(states[:1])
        again = fresh()
        again.load_state_dict(penstock.merge_states(states))
        return [(ids, [True] * 4, b"") for ids in got] + batches(again)

    assert valid_ids(together(check, tmp_path, photos)) == list(range(COUNT))


def test_dropin_takes_no_ranks_from_the_process_group(photos, tmp_path):
    """Evaluation by rank 0 alone sees everything; a Subset cut by hand is read as it is."""

    def check(rank, photos):
        whole = folder(photos)
        mine = Subset(whole, range(rank, COUNT, WORLD))
        alone = numbers(DataLoader(whole, 7)) == numbers(torch.utils.data.DataLoader(whole, 7)) if rank == 0 else True
        return alone, numbers(DataLoader(mine, 4)) == numbers(torch.utils.data.DataLoader(mine, 4)), len(mine)

    assert together(check, tmp_path, photos) == [(True, True, 30)] * WORLD


@pytest.mark.parametrize("drop", [False, True])
def test_dropin_follows_a_distributed_sampler(photos, tmp_path, drop):
    def check(rank, photos):
        data, seen = folder(photos), {}
        for kind in (DataLoader, torch.utils.data.DataLoader):
            sampler = DistributedSampler(data, seed=5, drop_last=drop)
            loader = kind(data, 7, sampler=sampler, drop_last=drop)
            seen[kind] = []
            for epoch in range(2):
                sampler.set_epoch(epoch)
                seen[kind] += numbers(loader)
        ours, theirs = seen.values()
        return ours == theirs, len(ours)

    assert together(check, tmp_path, photos) == [(True, 8 if drop else 10)] * WORLD


@pytest.mark.parametrize("explicit", [False, True])
def test_dropin_rank_0_saves_for_all(photos, tmp_path, explicit):
    def check(rank, photos):
        data = folder(photos)

        def fresh():
            if explicit:
                return DataLoader(data, 4, shuffle=True, seed=3, rank=rank, world=WORLD)
            sampler = DistributedSampler(data, seed=5)
            sampler.set_epoch(1)
            return DataLoader(data, 4, sampler=sampler)

        torch.manual_seed(1)
        loader, again = fresh(), fresh()
        turn = iter(loader)
        for _ in range(3):
            next(turn)
        again.load_state_dict(of_rank_0(loader.state_dict()))
        rest = numbers(turn)
        return numbers(again) == rest, len(rest)

    assert together(check, tmp_path, photos) == [(True, 5)] * WORLD


@pytest.mark.parametrize("native", ["auto", False])
def test_dropin_with_another_world_gives_what_is_left(photos, native):
    data = folder(photos)

    def part(rank, world):
        share = {} if world is None else {"rank": rank, "world": world}
        return DataLoader(data, 4, shuffle=True, seed=3, native=native, **share)

    def parts(world, state):
        loaders = [part(rank, world) for rank in range(world or 1)]
        for loader in loaders:
            loader.load_state_dict(state)
        return loaders

    torch.manual_seed(1)
    whole = numbers(part(None, None))
    first = [part(rank, 2) for rank in range(2)]
    turns = [iter(loader) for loader in first]
    state = None
    for _ in range(3):
        for turn in turns:
            next(turn)
        state = first[0].state_dict()
    assert sorted(map(str, numbers(parts(None, state)[0]))) == sorted(map(str, whole[6:]))
    three = parts(3, state)
    begun = [numbers(zip_one) for zip_one in ([next(iter(loader))] for loader in three)]
    again = parts(1, three[2].state_dict())[0]
    got = [batch for one in begun for batch in one] + numbers(again)
    assert got == whole[6:]
