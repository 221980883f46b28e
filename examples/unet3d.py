#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a 3D U-Net to find organs and tumours in scans, from raw NIfTI in one pipeline.

    python examples/unet3d.py                            # small made-up scans, under a minute on a CPU
    penstock synth volumes scans --count 32              # made-up scans of the size of the KiTS data, 4.4 GB once prepared
    python examples/unet3d.py --data scans --full        # patches of 128 voxels a side and a net of full width, on a GPU
    python examples/unet3d.py --data kits19/data --full  # the real ones: case_00000/imaging.nii.gz and segmentation.nii.gz

What MLPerf's reference does beforehand (resample, clip, normalise, pad) is the part of the pipeline that is the same every time: it is
done in the first epoch and kept in memory. Evaluation takes whole scans, one at a time.
"""
import argparse
import gzip
import pathlib
import struct
import tempfile
import time

import numpy
import torch

import penstock

PREPARE = "decode | spacing((1.6, 1.2, 1.2)) | clip(-79, 304) | intensity(101, 76.9) | pad_min({patch})"
AUGMENT = " | balanced_crop({patch}) | random_flip | cast(f32) | random_brightness((1.7, 2.3)) | gaussian_noise(0.1)"
CLASSES = 3


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, help="folder of cases (default: made-up ones)")
    parser.add_argument("--full", action="store_true", help="patches of 128, a wide net; needs a GPU")
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--cache", default="auto", help="memory for prepared scans: 0, 16G, auto")
    args = parser.parse_args()
    args.patch, args.width = (128, 32) if args.full else (24, 6)
    args.epochs = args.epochs or (50 if args.full else 8)
    args.device = "cuda" if torch.cuda.is_available() else "cpu"
    return args


def write_nifti(path: pathlib.Path, array: numpy.ndarray, spacing: tuple) -> None:
    head = bytearray(352)
    struct.pack_into("<i", head, 0, 348)
    struct.pack_into("<8h", head, 40, 3, *array.shape, 1, 1, 1, 1)
    struct.pack_into("<2h", head, 70, {"uint8": 2, "int16": 4}[array.dtype.name], array.itemsize * 8)
    struct.pack_into("<4f", head, 76, 1.0, *spacing)
    struct.pack_into("<f", head, 108, 352.0)
    head[344:348] = b"n+1\0"
    path.write_bytes(gzip.compress(bytes(head) + array.tobytes(order="F"), 1))


def make_up(root: pathlib.Path, count: int = 10) -> pathlib.Path:
    """Two bright ellipsoids in a grey body, and a darker ball in one of them, under noise."""
    rng = numpy.random.default_rng(0)
    for number in range(count):
        shape, spacing = rng.integers((20, 64, 64), (28, 80, 80)), (3.2, 0.9, 0.9)
        grid = numpy.stack(numpy.meshgrid(*[numpy.linspace(-1, 1, n) for n in shape], indexing="ij"), -1)
        image, mask = numpy.full(shape, 40.0), numpy.zeros(shape, numpy.uint8)
        for side in (-0.45, 0.45):
            centre = numpy.array([0, 0.2, side]) + rng.uniform(-0.1, 0.1, 3)
            inside = (((grid - centre) / (0.5, 0.28, 0.22)) ** 2).sum(-1) < 1
            image[inside], mask[inside] = 160, 1
            ball = ((grid - centre - rng.uniform(-0.1, 0.1, 3)) ** 2).sum(-1) < 0.02
            image[ball], mask[ball] = 250, 2
        folder = root / f"case_{number:05}"
        folder.mkdir(parents=True)
        noisy = (image + rng.normal(0, 20, shape)).astype(numpy.int16)
        write_nifti(folder / "imaging.nii.gz", noisy, spacing)
        write_nifti(folder / "segmentation.nii.gz", mask, spacing)
    return root


def block(before: int, after: int, stride: int = 1) -> torch.nn.Module:
    nn = torch.nn
    steps = [nn.Conv3d(before, after, 3, stride, 1, bias=False), nn.InstanceNorm3d(after, affine=True), nn.ReLU()]
    return nn.Sequential(*steps, nn.Conv3d(after, after, 3, 1, 1, bias=False), nn.InstanceNorm3d(after, affine=True), nn.ReLU())


class UNet3D(torch.nn.Module):
    """Halves the volume at each level, then goes back up over what was kept at each."""

    def __init__(self, width: int, levels: int):
        super().__init__()
        widths = [min(width << level, 320) for level in range(levels)]
        self.down = torch.nn.ModuleList([block(1 if i == 0 else widths[i - 1], w, 1 if i == 0 else 2) for i, w in enumerate(widths)])
        pairs = list(zip(widths[:0:-1], widths[-2::-1]))
        self.up = torch.nn.ModuleList([torch.nn.ConvTranspose3d(below, above, 2, 2) for below, above in pairs])
        self.join = torch.nn.ModuleList([block(2 * above, above) for _, above in pairs])
        self.last = torch.nn.Conv3d(widths[0], CLASSES, 1)

    def forward(self, x):
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
        kept.pop()
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([up(x), kept.pop()], 1))
        return self.last(x)


def loss_of(scores, mask):
    """Cross entropy and what is missing to a Dice of 1, in equal parts."""
    shares, wanted = scores.softmax(1), torch.nn.functional.one_hot(mask, CLASSES).movedim(-1, 1)
    both, each = (shares * wanted).sum((0, 2, 3, 4)), (shares + wanted).sum((0, 2, 3, 4))
    return torch.nn.functional.cross_entropy(scores, mask) + 1 - ((2 * both + 1) / (each + 1))[1:].mean()


def dice_of(model, loader, device, multiple: int) -> list:
    """Of each class over whole scans, whose sides are filled up to what the net can halve."""
    model.eval()
    both, each = torch.zeros(CLASSES, device=device), torch.zeros(CLASSES, device=device)
    with torch.no_grad():
        for image, mask in loader:
            image, mask = image.to(device), mask.to(device)[:, 0].long()
            border = [b for n in reversed(image.shape[2:]) for b in (0, -n % multiple)]
            found = model(torch.nn.functional.pad(image, border)).argmax(1)[:, : mask.shape[1], : mask.shape[2], : mask.shape[3]]
            for c in range(CLASSES):
                both[c] += 2 * ((found == c) & (mask == c)).sum()
                each[c] += (found == c).sum() + (mask == c).sum()
    model.train()
    return (both / each.clamp(min=1)).tolist()[1:]


def main() -> None:
    args = arguments()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as made:
        data = penstock.Dataset(str(args.data or make_up(pathlib.Path(made))))
        held = max(1, len(data) // 5)
        prepare, levels = PREPARE.format(patch=args.patch), 5 if args.full else 3
        train = penstock.Loader(data, prepare + AUGMENT.format(patch=args.patch), args.batch, subset=range(held, len(data)),
                                repeat=1 if args.full else 4, device="cpu", cache=args.cache, seed=1)  # fmt: skip
        whole = penstock.Loader(data, prepare, 1, subset=range(held), train=False, engine=train.engine, device="cpu",
                                fields={"image": "padded", "mask": "padded"})  # fmt: skip
        model = UNet3D(args.width, levels).to(args.device)
        optimizer = torch.optim.AdamW(model.parameters(), 3e-4 if args.full else 6e-3)
        for epoch in range(args.epochs):
            begin, losses = time.perf_counter(), []
            for image, mask in train:
                image, mask = image.to(args.device), mask.to(args.device)[:, 0].long()
                with torch.autocast(args.device, torch.bfloat16, enabled=args.full and args.device == "cuda"):
                    loss = loss_of(model(image).float(), mask)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
            seconds = time.perf_counter() - begin
            print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}, {len(losses) * args.batch / seconds:.1f} patches/s", flush=True)
        print("dice of whole scans:", *(f"{d:.3f}" for d in dice_of(model, whole, args.device, 1 << (levels - 1))))


if __name__ == "__main__":
    main()
