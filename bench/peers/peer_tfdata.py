# SPDX-License-Identifier: Apache-2.0
"""tf.data: decode_and_crop_jpeg and resize in TensorFlow's threads, tuned by itself."""
import os
import sys

import harness

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
NOTE = "TensorFlow's resize (no antialiasing) and fast DCT, nhwc"


def version():
    import tensorflow

    return tensorflow.__version__


def batches(args):
    import tensorflow as tf

    pairs = harness.paths_in(args.data)
    mean, std = (tf.constant([255 * v for v in values], tf.float32) for values in (harness.MEAN, harness.STD))

    def load(path, label):
        raw = tf.io.read_file(path)
        shape = tf.image.extract_jpeg_shape(raw)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            shape, tf.zeros([1, 0, 4]), aspect_ratio_range=(3 / 4, 4 / 3), area_range=(0.08, 1.0), max_attempts=10,
            use_image_if_no_bounding_boxes=True, min_object_covered=0.0)
        window = tf.stack([begin[0], begin[1], size[0], size[1]])
        image = tf.image.resize(tf.image.decode_and_crop_jpeg(raw, window, channels=3), [224, 224])
        return (tf.image.random_flip_left_right(image) - mean) / std, label

    options = tf.data.Options()
    options.deterministic = False
    options.threading.private_threadpool_size = args.workers
    data = tf.data.Dataset.from_tensor_slices(([p for p, _ in pairs], [label for _, label in pairs]))
    data = data.shuffle(len(pairs)).repeat().map(load, num_parallel_calls=tf.data.AUTOTUNE)
    data = data.batch(args.batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE).with_options(options)
    return data.as_numpy_iterator()


def fixed(args, paths):
    import numpy
    import tensorflow as tf

    pictures = []
    for path in paths:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        height, width = image.shape[:2]
        size = (int(256 * height / width), 256) if width <= height else (256, int(256 * width / height))
        image = tf.image.resize(image, size).numpy()
        top, left = round((size[0] - 224) / 2), round((size[1] - 224) / 2)
        pictures.append(numpy.rint(image[top:top + 224, left:left + 224]).clip(0, 255).astype("uint8"))
    return numpy.stack(pictures)


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
