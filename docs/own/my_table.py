# my_table.py
import numpy as np
from sgdlab.data import Dataset, Images
from sgdlab.data import DATASETS


@DATASETS.register(title="Table", files=("path",))
def table(*, path: str = "", label: str = "label", test_share: float = 0.25):
    """Rows of a CSV file with a header: numbers, and a column of classes from 0.

    Args:
      path: the file.
      label: the column of classes.
      test_share: of the rows, those that are tested on.
    """
    if not 0 < test_share < 1:
        raise ValueError(f"test_share={test_share} must be above 0 and below 1")
    rows = np.genfromtxt(path, delimiter=",", names=True)
    if label not in rows.dtype.names:
        raise ValueError(f"label={label} must be one of {', '.join(rows.dtype.names)}")
    classes = rows[label].astype(np.int32)
    features = np.stack([rows[name] for name in rows.dtype.names if name != label], axis=1)
    order = np.random.default_rng(0).permutation(len(rows))
    test, train = np.split(order, [round(test_share * len(rows))])
    features = (features - features[train].mean(axis=0)) / (features[train].std(axis=0) + 1e-9)
    pixels = features.astype(np.float32)[:, None, None, :]  # one pixel with a channel for each feature
    return Dataset(
        Images(pixels[train], classes[train]), Images(pixels[test], classes[test]), num_classes=classes.max() + 1
    )
