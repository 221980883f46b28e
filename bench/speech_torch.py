#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The baseline of bench/speech.py: the features of the RNN-T reference by torch and torchaudio in PyTorch's DataLoader, in
steady state.

One recording at a time, as a dataset's __getitem__ would: FLAC by soundfile or torchaudio, silence trimmed (librosa's
rule, on tensors), speed changed by torchaudio's resampling with its kernels kept, dither, pre-emphasis, MelSpectrogram,
logarithm, normalising, SpecAugment, stacking; batches are padded by pad_sequence. Prints one JSON line.

    speech_torch.py --data DIR --pipeline features|rnnt [--workers 2] [--seconds 15] [--decode soundfile|torchaudio|wave]
"""
import argparse
import glob
import json
import math
import os
import random
import sys
import time
import wave as wave_files

import torch

try:
    import soundfile
    import torchaudio
except ImportError:  # bench/train_speech.py does without: WAV files, and what it needs of torchaudio written below
    torchaudio = None

sys.dont_write_bytecode = True
import common
from torch_loader import Endless

BATCH = 16


class Mel(torch.nn.Module):
    """MelSpectrogram with librosa's filters, for where torchaudio is not."""

    def __init__(self, rate=16000, size=512, window=320, hop=160, mels=80):
        super().__init__()
        self.size, self.window, self.hop = size, torch.hann_window(window, periodic=False), hop
        knee, step = 15.0, math.log(6.4) / 27
        top = knee + math.log(rate / 2 / 1000) / step
        points = torch.linspace(0, top, mels + 2, dtype=torch.float64)
        corners = torch.where(points < knee, points * 200 / 3, 1000 * torch.exp(step * (points - knee)))
        bins = torch.linspace(0, rate / 2, size // 2 + 1, dtype=torch.float64)
        ramps, widths = corners[:, None] - bins[None], corners.diff()
        filters = torch.minimum(-ramps[:-2] / widths[:-1, None], ramps[2:] / widths[1:, None]).clamp(min=0)
        self.filters = (filters * (2 / (corners[2:] - corners[:-2]))[:, None]).float()

    def forward(self, wave):
        spectrum = torch.stft(wave, self.size, self.hop, len(self.window), self.window, return_complex=True)
        return self.filters @ spectrum.abs().square()


class Resample:
    """torchaudio's, by its default kernel."""

    def __init__(self, old, new):
        common_part = math.gcd(old, new)
        self.old, self.new = old // common_part, new // common_part
        base = min(self.old, self.new) * 0.99
        self.width = math.ceil(6 * self.old / base)
        index = torch.arange(-self.width, self.width + self.old, dtype=torch.float64)[None] / self.old
        t = ((torch.arange(0, -self.new, -1, dtype=torch.float64)[:, None] / self.new + index) * base).clamp(-6, 6)
        bell = torch.cos(t * math.pi / 12) ** 2
        self.kernel = (torch.sinc(t) * bell * base / self.old).float()[:, None]

    def __call__(self, wave):
        padded = torch.nn.functional.pad(wave[None, None], (self.width, self.width + self.old))
        made = torch.nn.functional.conv1d(padded, self.kernel, stride=self.old)[0].T.reshape(-1)
        return made[:-(-self.new * len(wave) // self.old)]


def trim(wave, top_db=60, frame=2048, hop=512):
    frames = torch.nn.functional.pad(wave, (frame // 2, frame // 2)).unfold(0, frame, hop)
    power = frames.square().mean(1).clamp(min=1e-10)
    loud = torch.nonzero(power > power.max() * 10 ** (-top_db / 10))
    return wave[int(loud[0]) * hop:(int(loud[-1]) + 1) * hop]


class Speech(torch.utils.data.Dataset):
    def __init__(self, root, pipeline, decode):
        ending = "wav" if decode == "wave" else "flac"
        self.files = sorted(glob.glob(os.path.join(root, "**", "*." + ending), recursive=True))
        self.texts = {}
        for path in glob.glob(os.path.join(root, "**", "*.trans.txt"), recursive=True):
            with open(path, encoding="utf-8") as handle:
                self.texts.update(line.rstrip("\n").split(" ", 1) for line in handle)
        self.full, self.decode = pipeline == "rnnt", decode
        self.mel = Mel() if torchaudio is None else torchaudio.transforms.MelSpectrogram(
            16000, n_fft=512, win_length=320, hop_length=160, n_mels=80, norm="slaney", mel_scale="slaney",
            window_fn=torch.hann_window, wkwargs={"periodic": False})
        self.speeds = {}

    def __len__(self):
        return len(self.files)

    def load(self, path):
        if self.decode == "torchaudio":
            return torchaudio.load(path)[0][0]
        if self.decode == "wave":
            with wave_files.open(path) as file:
                return torch.frombuffer(bytearray(file.readframes(file.getnframes())), dtype=torch.int16) / 32768
        return torch.from_numpy(soundfile.read(path, dtype="float32")[0])

    def speed(self, wave):
        percent = random.randint(85, 115)
        if percent == 100:
            return wave
        if percent not in self.speeds:
            self.speeds[percent] = (Resample if torchaudio is None else torchaudio.transforms.Resample)(percent, 100)
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
        return frames.T.reshape(-1, 240), self.texts[os.path.basename(path).rsplit(".", 1)[0]]


def padded(samples):
    frames, texts = zip(*samples)
    return torch.nn.utils.rnn.pad_sequence(frames, batch_first=True), torch.tensor([len(f) for f in frames]), texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--pipeline", choices=["features", "rnnt"], required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--decode", choices=["soundfile", "torchaudio", "wave"], default="soundfile")
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
                      "torch": torch.__version__, "torchaudio": torchaudio and torchaudio.__version__}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
