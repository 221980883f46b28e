#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of a GPU each loader keeps busy with speech: training steps of an encoder of RNN-T's shape, against synthetic
input.

MLPerf's encoder: two LSTM layers of 1,024, time halved, three more; here with CTC in place of the transducer's loss, bf16.
Recordings are WAV files of LibriSpeech's lengths (`penstock synth speech --form wav`), batches of --batch padded, from
trimming to stacking as in bench/speech.py; Penstock's are of one bucket each. In each of --rounds rounds every contender
feeds the model for --seconds, after as many steps as it could have prepared ahead; ratios are taken within a round. The
first epoch of Penstock with a cache is reported apart.

    bench/train_speech.py --data DIR [--batch 64] [--workers N] [--rounds 5] [--seconds 4]
                          [--rows synthetic,penstock,cache,torch] [--out FILE]

taskset decides how many cores there are; --workers defaults to all of them.
"""
import argparse
import json
import os
import sys
import time

import torch

sys.dont_write_bytecode = True
import common
import speech
import speech_torch
from torch_loader import Endless

ROWS = ("synthetic", "penstock", "cache", "torch")
CLASSES = 29


class Encoder(torch.nn.Module):
    def __init__(self, features=240, hidden=1024):
        super().__init__()
        self.first = torch.nn.LSTM(features, hidden, 2, batch_first=True)
        self.second = torch.nn.LSTM(2 * hidden, hidden, 3, batch_first=True)
        self.last = torch.nn.Linear(hidden, CLASSES)

    def forward(self, frames):
        frames = self.first(frames)[0]
        frames = torch.nn.functional.pad(frames, (0, 0, 0, frames.shape[1] % 2))
        return self.last(self.second(frames.reshape(len(frames), -1, 2 * frames.shape[2]))[0])


class Trainer:
    def __init__(self, device, hidden):
        self.device, self.model = device, Encoder(hidden=hidden).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)

    def step(self, frames, lengths, texts):
        letters = [[1 + (ord(c) - 64) % 28 for c in text[:20]] for text in texts]
        sizes = torch.tensor([len(text) for text in letters])
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            scores = self.model(frames)
        scores = scores.float().log_softmax(-1).transpose(0, 1)
        wanted = torch.tensor(sum(letters, []), device=self.device)
        loss = torch.nn.functional.ctc_loss(scores, wanted, (lengths + 1) // 2, sizes, zero_infinity=True)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def synthetic(args, device):
    frames = torch.randn(args.batch, args.frames, 240, device=device)
    lengths = torch.full((args.batch,), args.frames)
    while True:
        yield frames, lengths, ["MADE UP"] * args.batch


def penstock_loader(args, device, cache):
    import penstock

    return penstock.Loader(args.data, speech.OURS["rnnt"], args.batch, fields={"audio": "padded", "text": ""},
                           device=str(device), buckets="bytes:6", workers=args.workers, drop_last=True,
                           memory=args.memory if cache else 0, cache="auto" if cache else 0)


def batches_of(loader):
    for batch in loader:
        yield batch.audio, torch.tensor(batch.lengths("audio")[:, 0].tolist()), batch.text


def endless(loader):
    while True:
        yield from batches_of(loader)


def torch_rows(args, device):
    data = speech_torch.Speech(args.data, "rnnt", "wave")
    loader = torch.utils.data.DataLoader(data, args.batch, sampler=Endless(len(data)), num_workers=args.workers,
                                         collate_fn=speech_torch.padded, persistent_workers=True, prefetch_factor=2,
                                         pin_memory=device.type == "cuda")
    for frames, lengths, texts in loader:
        yield frames.to(device, non_blocking=True), lengths, texts


def settle(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def window(trainer, batches, args, busy):
    for _ in range(2 * args.workers + 4):
        trainer.step(*next(batches))
    settle(trainer.device)
    cpu, begin, count = common.cpu_seconds(), time.perf_counter(), 0
    while time.perf_counter() - begin < args.seconds:
        frames, lengths, texts = next(batches)
        trainer.step(frames, lengths, texts)
        count += len(texts)
    settle(trainer.device)
    end = time.perf_counter()
    return {"rate": count / (end - begin), "busy": busy.between(begin, end) if busy else float("nan"),
            "cpu_per_1000": (common.cpu_seconds() - cpu) / count * 1000}


def first_epoch(trainer, loader):
    """Filling the cache, trained on like any other."""
    begin, count = time.perf_counter(), 0
    for frames, lengths, texts in batches_of(loader):
        trainer.step(frames, lengths, texts)
        count += len(texts)
    settle(trainer.device)
    return count / (time.perf_counter() - begin)


def measure(args, device):
    """One contender at a time, round by round, so that none prepares at another's cost."""
    trainer, rounds, first = Trainer(device, args.hidden), [], None
    busy = None
    if device.type == "cuda":
        from train import BusyMeter  # needs transforms v2

        busy = BusyMeter()
    cached = penstock_loader(args, device, True) if "cache" in args.rows else None
    if cached:
        first = first_epoch(trainer, cached)
    for number in range(args.rounds):
        turn = {}
        for name in args.rows:
            batches = {"synthetic": lambda: synthetic(args, device), "cache": lambda: endless(cached),
                       "penstock": lambda: endless(penstock_loader(args, device, False)),
                       "torch": lambda: torch_rows(args, device)}[name]()
            turn[name] = window(trainer, batches, args, busy)
            batches.close()
        rounds.append(turn)
        print(f"round {number + 1}: " + ", ".join(f"{n} {r['rate']:.0f}" for n, r in turn.items()), flush=True)
    if busy:
        busy.process.kill()
    return rounds, first


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=1024, help="of the LSTM layers; smaller to try the bench out")
    parser.add_argument("--frames", type=int, default=470, help="of synthetic batches: the mean of padded ones")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--memory", default="32G", help="of the loader with the cache")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out")
    args = parser.parse_args()
    args.rows = args.rows.split(",")
    device = torch.device(args.device)
    rounds, first = measure(args, device)
    result = {"cores": len(os.sched_getaffinity(0)), "batch": args.batch, "torch": torch.__version__,
              "gpu": torch.cuda.get_device_name() if device.type == "cuda" else None, "cache_first_epoch_rate": first,
              "rows": {}}
    for name in args.rows:
        row = {key: common.spread([turn[name][key] for turn in rounds]) for key in ("rate", "busy", "cpu_per_1000")}
        row["of_synthetic"] = common.spread([turn[name]["rate"] / turn["synthetic"]["rate"] for turn in rounds])
        result["rows"][name] = row
        middle = {key: value["median"] for key, value in row.items()}
        print("%-10s %8.1f/s, %.3f of synthetic, GPU %3.0f %%, CPU s/1000 %.2f" % (
            name, middle["rate"], middle["of_synthetic"], 100 * middle["busy"], middle["cpu_per_1000"]))
    if first:
        print(f"first epoch with the cache: {first:.1f}/s")
    if args.out:
        with open(args.out, "w", encoding="ascii") as handle:
            json.dump(result, handle, indent=1)
    sys.stdout.flush()
    os._exit(0)  # workers of endless loaders have nothing left to say


if __name__ == "__main__":
    main()
