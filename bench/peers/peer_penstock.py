# SPDX-License-Identifier: Apache-2.0
"""Penstock, native loader, no cache."""
import sys

import harness


def version():
    import penstock

    return penstock.__version__


def batches(args):
    import penstock

    loader = penstock.Loader(args.data, "decode | random_resized_crop(224) | hflip | normalize(imagenet)", args.batch,
                             workers=args.workers, cache=0, drop_last=True)
    while True:
        yield from loader


def fixed(args, paths):
    import penstock

    loader = penstock.Loader(args.data, "decode | resize(256) | center_crop(224)", len(paths), train=False)
    return next(iter(loader)).image


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
