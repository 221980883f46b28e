#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The baseline of bench/speech.py: the features of the RNN-T reference by torch and torchaudio in PyTorch's DataLoader, in steady state.

One recording at a time, as a dataset's __getitem__ would: FLAC by soundfile or torchaudio, silence trimmed (librosa's rule, on tensors), speed
changed by torchaudio's resampling with its kernels kept, dither, pre-emphasis, MelSpectrogram, logarithm, normalising, SpecAugment, stacking; batches
are padded by pad_sequence. Prints one JSON line.

    speech_torch.py --data DIR --pipeline features|rnnt [--workers 2] [--seconds 15] [--decode soundfile|torchaudio]
"""
import argparse
import glob
import json
import os
import random
import sys
import time

import soundfile
import torch
import torchaudio

sys.dont_write_bytecode = True
import common
from torch_loader import Endless

BATCH = 16


def trim(wave, top_db=60, frame=2048, hop=512):
    power = torch.nn.functional.pad(wave, (frame // 2, frame // 2)).unfold(0, frame, hop).square().mean(1).clamp(min=1e-10)
    loud = torch.nonzero(power > power.max() * 10 ** (-top_db / 10))
    return wave[int(loud[0]) * hop:(int(loud[-1]) + 1) * hop]


class Speech(torch.utils.data.Dataset):
    def __init__(self, root, pipeline, decode):
        self.files = sorted(glob.glob(os.path.join(root, "**", "*.flac"), recursive=True))
        self.texts = {}
        for path in glob.glob(os.path.join(root, "**", "*.trans.txt"), recursive=True):
            with open(path, encoding="utf-8") as handle:
                self.texts.update(line.rstrip("\n").split(" ", 1) for line in handle)
        self.full, self.decode = pipeline == "rnnt", decode
        self.mel = torchaudio.transforms.MelSpectrogram(
            16000, n_fft=512, win_length=320, hop_length=160, n_mels=80, norm="slaney", mel_scale="slaney",
            window_fn=torch.hann_window, wkwargs={"periodic": False})
        self.speeds = {}

    def __len__(self):
        return len(self.files)

    def load(self, path):
        if self.decode == "torchaudio":
            return torchaudio.load(path)[0][0]
        return torch.from_numpy(soundfile.read(path, dtype="float32")[0])

    def speed(self, wave):
        percent = random.randint(85, 115)
        if percent == 100:
            return wave
        if percent not in self.speeds:
            self.speeds[percent] = torchaudio.transforms.Resample(percent, 100)
        return self.speeds[percent](wave)

    @staticmethod
    def augment(frames):
        features, length = frames.shape
        for _ in range(2):
            width = random.randint(0, 20)
            first = random.randrange(max(1, features - width))
            frames[first:first + width] = 0
        most = round(length * 0.03)
        for _ in range(10):
            width = random.randint(0, most)
            first = random.randrange(max(1, length - width))
            frames[:, first:first + width] = 0
        return frames

    def __getitem__(self, index):
        path = self.files[index]
        wave = self.load(path)
        if self.full:
            wave = self.speed(trim(wave))
        wave = wave + 1e-5 * torch.randn_like(wave)
        wave = torch.cat((wave[:1], wave[1:] - 0.97 * wave[:-1]))
        frames = torch.log(self.mel(wave) + 1e-20)[:, :-(-len(wave) // 160)]
        frames = (frames - frames.mean(1, keepdim=True)) / (frames.std(1, keepdim=True) + 1e-5)
        frames = self.augment(frames)
        frames = torch.nn.functional.pad(frames, (0, -frames.shape[1] % 3))
        return frames.T.reshape(-1, 240), self.texts[os.path.basename(path)[:-5]]


def padded(samples):
    frames, texts = zip(*samples)
    return torch.nn.utils.rnn.pad_sequence(frames, batch_first=True), torch.tensor([len(f) for f in frames]), texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--pipeline", choices=["features", "rnnt"], required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--decode", choices=["soundfile", "torchaudio"], default="soundfile")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = Speech(args.data, args.pipeline, args.decode)
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, sampler=Endless(len(data)), num_workers=args.workers,
                                         collate_fn=padded, persistent_workers=True, prefetch_factor=4)
    batches, count = iter(loader), 0
    for _ in range(5 * args.workers):
        next(batches)
    start, cpu = time.perf_counter(), common.cpu_seconds()
    while time.perf_counter() - start < args.seconds:
        for _ in range(args.workers):
            count += len(next(batches)[0])
    elapsed = time.perf_counter() - start
    print(json.dumps({"samples_per_s": count / elapsed, "cpu_ms_a_sample": 1e3 * (common.cpu_seconds() - cpu) / count,
                      "torch": torch.__version__, "torchaudio": torchaudio.__version__}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
