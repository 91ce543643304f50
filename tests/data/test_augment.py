"""Augmentations against naive ones image by image; a batch of keys gives what one key after the other gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lib import environment

from sgdlab.data import augment
from sgdlab.data.preprocess import Preprocess, scaled

ALL = [
    augment.crop_and_flip(padding=3),
    augment.rotate_and_zoom(degrees=20.0, zoom=0.3),
    augment.flip(),
    augment.colour_noise(std=0.5),
    augment.in_turn((augment.crop_and_flip(1), augment.rotate_and_zoom(), augment.colour_noise())),
]


def images(number=6, height=7, width=9, dtype=np.float32):
    return np.random.default_rng(0).uniform(0.1, 1, (number, height, width, 3)).astype(dtype)


def keys(number):
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(5), jnp.arange(number))


@pytest.mark.representatives("flip", "colour_noise")
@pytest.mark.parametrize("apply", ALL, ids=lambda apply: type(apply).__name__)
def test_many_keys_at_once_are_one_after_the_other(apply):
    """Bit for bit, as users compile them."""
    tolerance = 0.0 if environment.FULLY else 1e-6
    given, drawn = images(), keys(4)
    together = jax.jit(jax.vmap(apply, (0, None)))(drawn, given)
    alone = jax.jit(apply)
    for key, found in zip(drawn, together, strict=True):
        np.testing.assert_allclose(found, alone(key, given), rtol=tolerance, atol=tolerance)
    assert found.dtype == np.float32
    assert len({np.asarray(found).tobytes() for found in together}) == 4


@pytest.mark.parametrize("apply", [ALL[0], ALL[3]], ids=lambda apply: type(apply).__name__)
def test_double_precision_elsewhere_changes_nothing(apply):
    """Tests and runs in double precision draw the same crops, and sides, as all others."""
    found = jax.jit(apply)(jax.random.key(2), images())
    with jax.enable_x64(False):
        np.testing.assert_array_equal(jax.jit(apply)(jax.random.key(2), images()), found)


@pytest.mark.parametrize("apply", ALL, ids=lambda apply: type(apply).__name__)
def test_are_static_settings(apply):
    again = type(apply)(**{name: getattr(apply, name) for name in apply.__dataclass_fields__})
    assert again == apply
    assert hash(Preprocess(augment=again)) == hash(Preprocess(augment=apply))


@pytest.mark.parametrize(
    "apply",
    [
        augment.crop_and_flip(padding=0, mirrored=False),
        augment.rotate_and_zoom(degrees=0.0, zoom=0.0),
        augment.colour_noise(std=0.0),
        augment.in_turn(()),
    ],
    ids=lambda apply: type(apply).__name__,
)
def test_nothing_to_do_changes_nothing(apply):
    np.testing.assert_array_equal(jax.jit(apply)(jax.random.key(0), images()), images())


def test_crops_are_windows_of_the_padded_image_and_all_occur():
    given = images(400, 4, 5)
    found = np.asarray(jax.jit(augment.crop_and_flip(padding=1))(jax.random.key(0), given))
    seen = set()
    for before, after in zip(given, found, strict=True):
        padded = np.pad(before, ((1, 1), (1, 1), (0, 0)))
        matching = [
            (row, column, mirrored)
            for row in range(3)
            for column in range(3)
            for mirrored in (1, -1)
            if (padded[row : row + 4, column : column + 5][:, ::mirrored] == after).all()
        ]
        assert len(matching) == 1
        seen.add(matching[0])
    assert len(seen) == 18


def test_flips_about_half_of_the_images():
    given = images(100)
    found = np.asarray(jax.jit(augment.flip())(jax.random.key(1), given))
    mirrored = (found == given[:, :, ::-1]).all((1, 2, 3))
    assert (mirrored | (found == given).all((1, 2, 3))).all()
    assert 30 <= mirrored.sum() <= 70


def bilinear(image, row, column):
    """The value between four pixels, black outside."""
    total = np.zeros(image.shape[-1])
    for i in (int(np.floor(row)), int(np.floor(row)) + 1):
        for j in (int(np.floor(column)), int(np.floor(column)) + 1):
            if 0 <= i < image.shape[0] and 0 <= j < image.shape[1]:
                total += image[i, j] * (1 - abs(row - i)) * (1 - abs(column - j))
    return total


def test_rotations_and_zooms_against_a_naive_one():
    given, key = images(3, dtype=np.float64), jax.random.key(3)
    found = jax.jit(augment.rotate_and_zoom(degrees=20.0, zoom=0.3))(key, given)
    drawn = np.asarray(jax.random.uniform(key, (2, 3, 1, 1), np.float64, minval=-1, maxval=1))[..., 0, 0]
    for image, after, angle, size in zip(given, found, np.radians(20) * drawn[0], 1.3 ** drawn[1], strict=True):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) / size
        for i, row in enumerate(np.asarray(after)):
            for j, pixel in enumerate(row):
                source = turn @ np.array([i - 3.0, j - 4.0]) + np.array([3.0, 4.0])
                np.testing.assert_allclose(pixel, bilinear(image, *source), atol=1e-12)


def test_colour_noise_moves_all_pixels_of_an_image_alike_along_the_components():
    given = images(2000, 2, 2, np.float64)
    added = np.asarray(jax.jit(augment.colour_noise(std=0.1))(jax.random.key(0), given)) - given
    np.testing.assert_allclose(added, np.broadcast_to(added[:, :1, :1], added.shape), atol=1e-12)
    # In the basis of the components, the coordinates are independent: their deviations are 0.1 of the eigenvalues.
    coordinates = added[:, 0, 0] @ np.linalg.inv(np.asarray(augment._EIGENVECTORS).T)
    np.testing.assert_allclose(coordinates.std(0) / np.asarray(augment._EIGENVALUES), 0.1, rtol=0.06)
    np.testing.assert_allclose(np.corrcoef(coordinates.T), np.eye(3), atol=0.08)
    with pytest.raises(ValueError, match=r"images of shape \(2, 3, 3, 1\) must have three channels"):
        augment.colour_noise()(jax.random.key(0), np.zeros((2, 3, 3, 1)))


def test_in_turn_gives_each_a_key_of_its_own():
    parts = (augment.colour_noise(std=0.2), augment.colour_noise(std=0.2))
    key, given = jax.random.key(0), images()
    once = jax.jit(parts[0])
    expected = given
    for index in range(2):
        expected = once(jax.random.fold_in(key, index), expected)
    found = jax.jit(augment.in_turn(parts))(key, given)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    first = once(jax.random.fold_in(key, 0), given) - given
    assert not np.allclose(found - given, 2 * first, atol=1e-3)


@pytest.mark.parametrize("white", [1, 16, 63, 255])
def test_integers_are_divided_as_numpy_divides(white):
    pixels = np.arange(white + 1, dtype=np.uint8)
    found = jax.jit(scaled, static_argnums=1)(pixels, white)
    np.testing.assert_array_equal(found, pixels.astype(np.float32) / np.float32(white))
    assert found.dtype == np.float32


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_preprocessing_is_the_formula(dtype):
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (4, 6, 6, 3)).astype(dtype)
    units = pixels.astype(np.float32) / np.float32(255) if dtype == np.uint8 else pixels
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    apply = augment.crop_and_flip(padding=2)
    preprocess, key = Preprocess(mean, std, apply), jax.random.key(0)
    normalised = lambda images: (np.asarray(images, np.float64) - mean) / std
    train = jax.jit(lambda pixels, key: preprocess.train(pixels, 255, key))
    test = jax.jit(lambda pixels: (preprocess.test(pixels, 255), Preprocess().train(pixels, 255, None)))
    found, plain = test(pixels)
    assert found.dtype == units.dtype
    np.testing.assert_allclose(found, normalised(units), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(train(pixels, key), normalised(jax.jit(apply)(key, units)), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(plain, units)
    with pytest.raises(ValueError, match="key=None must be a key"):
        preprocess.train(pixels, 255, None)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Preprocess(mean=(0.1, np.nan)), "mean="),
        (lambda: Preprocess(mean=()), r"mean=\(\) must be None"),
        (lambda: Preprocess(std=(0.1, 0.0)), r"std=\(0.1, 0.0\) must be .* above 0"),
        (lambda: Preprocess(mean=(0.1,), std=(0.1, 0.2)), r"std=\(0.1, 0.2\) must have as many channels as mean, 1"),
        (lambda: augment.crop_and_flip(padding=-1), "padding=-1 must be"),
        (lambda: augment.rotate_and_zoom(degrees=181.0), "degrees=181.0 must be"),
        (lambda: augment.rotate_and_zoom(zoom=-0.1), "zoom=-0.1 must be"),
        (lambda: augment.colour_noise(std=-1.0), "std=-1.0 must be"),
    ],
)
def test_impossible_augmentations(make, match):
    with pytest.raises(ValueError, match=f"^{match}"):
        make()
