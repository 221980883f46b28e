# SPDX-License-Identifier: Apache-2.0
"""A cache before a source that is always busy: it keeps what spares most reading, which is known though no moment is without a read."""
import penstock

EPOCHS = 10  # it takes three


def test_stored_bytes_are_kept_where_decoded_pictures_do_not_fit(bucket):
    """537 KB stored, 8 MB decoded, a cache of 1 MiB: from some epoch on nothing is read any more."""
    data = penstock.Dataset(bucket(rate=200e3, delay_s=0), index_dir="")
    with penstock.Loader(data, "decode | random_resized_crop(32) | hflip", 8, workers=2, memory="64M", cache="1M") as loader:
        read = [0]
        for _ in range(EPOCHS):
            assert sorted(i for batch in loader for i in batch.ids) == list(range(len(data)))
            read.append(loader.stats()["bytes_read"])
            if read[-1] == read[-2]:
                break
        stats = loader.stats()
        assert read[-1] == read[-2], (read, stats)
        assert stats["encoded_hits"] > 0, stats
