# SPDX-License-Identifier: Apache-2.0
"""What feeds the models of bench/shapes.py: for each shape the data it is trained on, and the three ways there: made-up
tensors that are on the device already, PyTorch's DataLoader with the reference's loading code, and Penstock. Used by
bench/train_shapes.py.

A shape knows the size of everything, small or full. Its loaders are iterated epoch by epoch and give what the model
takes.
"""
import importlib
import json
import os
import random
import time

import torch
from torch.utils.data import DataLoader

import shapes


class Placed:
    """A loader whose batches are brought to the device by `place`."""

    def __init__(self, loader, place, close=None):
        self.loader, self.place, self.close = loader, place, close or self.stop
        self.batches = None

    def __iter__(self):
        self.batches = map(self.place, iter(self.loader))
        return self.batches

    def stop(self):
        """Ends the workers of a DataLoader, which live as long as its iterator."""
        self.batches = self.loader = None


class Shape:
    """device: where the model is. folder: this shape's data. memory: Penstock's, for everything."""

    def __init__(self, folder, small, device, memory):
        self.folder, self.small, self.device, self.memory = folder, small, device, memory
        self.cuda = device.type == "cuda"

    def to_device(self, batch):
        return tuple(value.to(self.device, non_blocking=True) for value in batch)

    def ready(self, contender):
        """What is no part of an epoch: modules that a training script has imported already."""
        importlib.import_module("penstock" if contender == "penstock" else self.kind + "_torch")

    def torch(self, data, workers, **more):
        """As a script has it, with as many workers as cores."""
        if "batch_sampler" not in more:
            more.update(batch_size=self.batch, shuffle=True, drop_last=True)
        loader = DataLoader(data, num_workers=workers, persistent_workers=True, pin_memory=self.cuda, prefetch_factor=2,
                            **more)
        return Placed(loader, self.to_device)

    def penstock(self, pipeline, place=tuple, **more):
        import penstock

        loader = penstock.Loader(self.folder, pipeline, self.batch, device=self.device.type, drop_last=True, seed=1,
                                 memory=self.memory, **more)
        return Placed(loader, place, loader.close)

    def synthetic(self):
        """Endless, from what stays on the device."""
        while True:
            yield self.made_up()

    def synth(self):
        """Arguments of penstock synth."""
        return [self.kind, self.folder, "--count", str(self.count), "--scale", str(self.scale), *self.synth_more]


class Unet(Shape):
    title, kind, synth_more = "3D U-Net", "volumes", ["--form", "npy"]

    def __init__(self, *args):
        super().__init__(*args)
        self.count, self.scale, self.batch, self.patch = (8, 0.02, 2, 32) if self.small else (112, 1, 7, 128)
        self.made = None

    def model(self):
        return shapes.UNet3D(4, 3) if self.small else shapes.UNet3D()

    def made_up(self):
        if self.made is None:
            size = (self.batch, 1, self.patch, self.patch, self.patch)
            mask = torch.randint(0, 3, size, dtype=torch.uint8, device=self.device)
            self.made = (torch.randn(size, device=self.device), mask)
        return self.made

    def by_torch(self, workers):
        import volumes_torch

        data = volumes_torch.PytTrain(self.folder, False)
        data.rand_crop = volumes_torch.RandBalancedCrop((self.patch,) * 3, 0.4)
        return self.torch(data, workers)

    def by_penstock(self):
        import volumes

        return self.penstock(volumes.RECIPES["npy"].replace("balanced_crop(128)", "balanced_crop(%d)" % self.patch))


class Ssd(Shape):
    title, kind, synth_more = "SSD", "detection", ["--classes", "80"]

    def __init__(self, *args):
        super().__init__(*args)
        self.count, self.scale, self.batch = (32, 0.2, 4) if self.small else (9600, 1, 64)
        self.made = None

    def model(self):
        return shapes.Ssd300(4) if self.small else shapes.Ssd300()

    def made_up(self):
        if self.made is None:
            corner = torch.rand(self.batch, 16, 2) * 200
            boxes = torch.cat([corner, corner + 10 + torch.rand(self.batch, 16, 2) * 80], -1)
            labels = torch.randint(1, 81, (self.batch, 16))
            self.made = self.to_device((torch.randn(self.batch, 3, 300, 300), boxes, labels))
        return self.made

    def to_device(self, batch):
        images, boxes, labels = super().to_device(batch)
        return images.to(memory_format=torch.channels_last) if self.cuda else images, boxes, labels

    def by_torch(self, workers):
        return self.torch(self.coco(self.decode), workers, collate_fn=padded_targets)

    def coco(self, decode):
        import detection_torch

        return detection_torch.Coco(self.folder, detection_torch.Ssd([300, 300]), False, decode)

    def ready(self, contender):
        """Pillow or torchvision's own reader, whichever takes less time for a few pictures."""
        super().ready(contender)
        took = {}
        for decode in ("pil", "io") if contender == "torch" else ():
            made = self.coco(decode)
            begin = time.perf_counter()
            try:
                for number in range(24):
                    made[number]
                took[decode] = time.perf_counter() - begin
            except (RuntimeError, ImportError, TypeError):  # a torchvision without its reader
                pass
        self.decode = min(took, key=took.get, default=None)

    def by_penstock(self):
        import detection

        fields = {"image": "", "boxes": "padded", "labels": "padded"}
        return self.penstock(detection.OURS["ssd300"][0], lambda batch: (batch.image, batch.boxes, batch.labels),
                             fields=fields, channels_last=self.cuda)


def padded_targets(samples):
    images, targets = zip(*samples)
    boxes, labels = ([target[name] for target in targets] for name in ("boxes", "labels"))
    pad = torch.nn.utils.rnn.pad_sequence
    return torch.stack(images), pad(boxes, True), pad(labels, True)


class Speech(Shape):
    """WAV, which the standard library reads: FLAC needs packages that machines for training do not have."""

    title, kind, synth_more = "RNN-T", "speech", ["--form", "wav"]
    BUCKETS = 6

    def __init__(self, *args):
        super().__init__(*args)
        self.count, self.scale, self.batch, self.pieces = (48, 0.1, 4, 64) if self.small else (3600, 1, 24, 1024)
        self.sizes = None

    def model(self):
        return shapes.Rnnt(64, 32, self.pieces) if self.small else shapes.Rnnt()

    def sizes_file(self):
        return self.folder.rstrip("/") + "-sizes.json"

    def note_sizes(self):
        """Frames and pieces of the batches of an epoch; made-up input has them too: what a step costs hangs on them."""
        place, self.device = self.device, torch.device("cpu")
        feed = self.by_penstock()
        sizes = [[frames.shape[1], pieces.shape[1]] for frames, _, pieces, _ in feed]
        feed.close()
        self.device = place
        with open(self.sizes_file(), "w", encoding="ascii") as handle:
            json.dump(sizes, handle)

    def made_up(self):
        if self.sizes is None:
            with open(self.sizes_file(), encoding="ascii") as handle:
                self.sizes = [tuple(pair) for pair in json.load(handle)]
            frames, pieces = (max(pair[i] for pair in self.sizes) for i in (0, 1))
            self.frames = torch.randn(self.batch, frames, 240, device=self.device)
            self.text = torch.randint(1, self.pieces, (self.batch, pieces), device=self.device)
            self.turn = -1
        self.turn = (self.turn + 1) % len(self.sizes)
        frames, pieces = self.sizes[self.turn]
        full = [torch.full((self.batch,), size, device=self.device) for size in (frames, pieces)]
        return self.frames[:, :frames].contiguous(), full[0], self.text[:, :pieces].contiguous(), full[1]

    def by_torch(self, workers):
        import speech_torch

        data = speech_torch.Speech(self.folder, "rnnt", "wav")
        batches = Bucketed([os.path.getsize(path) for path in data.files], self.BUCKETS, self.batch)
        return self.torch(data, workers, batch_sampler=batches, collate_fn=PaddedSpeech(self.pieces))

    def by_penstock(self):
        import speech

        def place(batch):
            lengths = torch.from_numpy(batch.lengths("audio")[:, 0].copy())
            return batch.audio, *self.to_device((lengths, *shapes.pieces_of(batch.text, self.pieces)))

        return self.penstock(speech.OURS["rnnt"], place, fields={"audio": "padded", "text": ""},
                             buckets="bytes:%d" % self.BUCKETS)


class Bucketed:
    """Batches of recordings of about one length, in random order; what is left of the buckets goes together."""

    def __init__(self, sizes, buckets, batch):
        order = sorted(range(len(sizes)), key=sizes.__getitem__)
        ends = [len(order) * part // buckets for part in range(buckets + 1)]
        self.parts, self.batch = [order[a:b] for a, b in zip(ends, ends[1:])], batch

    def __iter__(self):
        batches, left = [], []
        for part in self.parts:
            part = random.sample(part, len(part))
            whole = len(part) // self.batch * self.batch
            batches += [part[at:at + self.batch] for at in range(0, whole, self.batch)]
            left += part[whole:]
        random.shuffle(left)
        batches += [left[at:at + self.batch] for at in range(0, len(left) - self.batch + 1, self.batch)]
        return iter(random.sample(batches, len(batches)))

    def __len__(self):
        return sum(map(len, self.parts)) // self.batch


class PaddedSpeech:
    def __init__(self, pieces):
        self.pieces = pieces

    def __call__(self, samples):
        import speech_torch

        frames, lengths, texts = speech_torch.padded(samples)
        return frames, lengths, *shapes.pieces_of(texts, self.pieces)


SHAPES = {"unet": Unet, "ssd": Ssd, "rnnt": Speech}
