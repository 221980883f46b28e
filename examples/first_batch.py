# SPDX-License-Identifier: Apache-2.0
"""Opens the dataset named on the command line and shows its first batches: python first_batch.py photos/"""

import itertools
import sys

import penstock


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: first_batch.py DATASET", file=sys.stderr)
        return 2
    pipeline = "decode | random_resized_crop(224) | hflip | normalize(imagenet)"
    try:
        with penstock.Loader(sys.argv[1], pipeline, batch_size=8) as loader:
            for batch in itertools.islice(loader, 3):
                print("epoch", batch.epoch, "step", batch.step, "ids", *batch.ids, "shape", batch.image.shape)
    except penstock.Error as error:
        print(f"first_batch: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
