#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small speech recogniser with CTC, on the CPU or on a GPU.

    python examples/speech.py                                # made-up speech, under a minute on a CPU
    python examples/speech.py --data LibriSpeech/ --split train-clean-100 --eval-split dev-clean --full

The loader trims, changes the speed, adds dither, makes log-mel features, normalises, masks and stacks them; batches hold
recordings of about one length (`buckets`), padded, and `lengths` says how long each is. `penstock synth speech` makes the
made-up data: its words are nonsense, but their sound tells them.
"""
import argparse
import os
import pathlib
import shutil
import string
import subprocess
import tempfile
import time

import torch

import penstock

LETTERS = "_ '" + string.ascii_uppercase  # the first is CTC's blank
FEATURES = "log_mel({mels}) | feature_norm{augment} | stack(3)"
TRAIN = "decode | trim(60) | speed((0.9, 1.1)) | dither | preemphasis | " + FEATURES
EVAL = "decode | trim(60) | preemphasis | " + FEATURES
FIELDS = {"audio": "padded", "text": ""}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, help="folder in LibriSpeech's layout (default: made-up speech)")
    parser.add_argument("--split", help="of the data, to train on")
    parser.add_argument("--eval-split", help="of the data, to evaluate on (default: what was trained on)")
    parser.add_argument("--full", action="store_true", help="a model and features of usual size")
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--batch", type=int, default=None)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    args.epochs = args.epochs or (50 if args.full else 10)
    args.batch = args.batch or (32 if args.full else 8)
    return args


def make_up(root: pathlib.Path, count: int = 320) -> pathlib.Path:
    """Utterances of one or two seconds."""
    program = shutil.which("penstock") or os.path.join(os.environ.get("PENSTOCK_BUILD_DIR", ""), "penstock")
    if not os.access(program, os.X_OK):
        raise SystemExit("speech: the command penstock makes the data, and it is not on the PATH; or give --data")
    subprocess.run([program, "synth", "speech", root, "--count", str(count), "--scale", "0.12"], check=True)
    return root


class Recognizer(torch.nn.Module):
    def __init__(self, features: int, hidden: int, layers: int):
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Linear(features, hidden), torch.nn.ReLU())
        self.rnn = torch.nn.GRU(hidden, hidden, layers, batch_first=True, bidirectional=True)
        self.last = torch.nn.Linear(2 * hidden, len(LETTERS))

    def forward(self, frames):
        return self.last(self.rnn(self.first(frames))[0]).log_softmax(-1)


def as_numbers(texts, device):
    """All letters in a row, and how many each text has."""
    numbers = [[LETTERS.index(letter) for letter in text.upper() if letter in LETTERS[1:]] for text in texts]
    return torch.tensor(sum(numbers, []), device=device), torch.tensor([len(text) for text in numbers], device=device)


def as_text(scores) -> str:
    """The best letter of each frame, repeats and blanks left out."""
    best = scores.argmax(-1).tolist()
    return "".join(LETTERS[b] for a, b in zip([0, *best], best) if b not in (0, a))


def distance(a: str, b: str) -> int:
    """Letters to change, add or leave out."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def train(model, loader, optimizer, device) -> float:
    model.train()
    total, count = 0.0, 0
    for batch in loader:
        lengths = torch.tensor(batch.lengths("audio")[:, 0].tolist(), device=device)
        letters, sizes = as_numbers(batch.text, device)
        scores = model(batch.audio)
        loss = torch.nn.functional.ctc_loss(scores.transpose(0, 1), letters, lengths, sizes, zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5)
        optimizer.step()
        total, count = total + float(loss.detach()) * len(sizes), count + len(sizes)
    return total / count


@torch.no_grad()
def evaluate(model, loader) -> float:
    """The share of letters that are wrong."""
    model.eval()
    wrong = letters = 0
    for batch in loader:
        scores = model(batch.audio).cpu()
        for text, row, n, valid in zip(batch.text, scores, batch.lengths("audio")[:, 0], batch.valid):
            if valid:
                wrong += distance(text, as_text(row[: int(n)]))
                letters += len(text)
    return wrong / letters


def main() -> int:
    args = arguments()
    torch.manual_seed(0)
    scratch = tempfile.TemporaryDirectory(prefix="penstock-speech-")
    data = args.data or make_up(pathlib.Path(scratch.name) / "speech")
    mels = 80 if args.full else 40
    augment = " | spec_augment" if args.full else ""
    model = Recognizer(3 * mels, *((512, 4) if args.full else (96, 1))).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), 3e-4 if args.full else 4e-3)
    with penstock.Engine() as engine:
        common = {"fields": FIELDS, "device": args.device, "engine": engine}
        training = penstock.Loader(data, TRAIN.format(mels=mels, augment=augment), args.batch, split=args.split,
                                   buckets="bytes:6", **common)
        testing = penstock.Loader(data, EVAL.format(mels=mels, augment=""), args.batch, train=False,
                                  split=args.eval_split or args.split, **common)
        for epoch in range(args.epochs):
            start = time.perf_counter()
            loss = train(model, training, optimizer, args.device)
            print(f"epoch {epoch}: loss {loss:.3f}, {time.perf_counter() - start:.1f} s", flush=True)
        print(f"letters wrong: {100 * evaluate(model, testing):.1f} %")
    scratch.cleanup()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
