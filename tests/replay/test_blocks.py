"""`partition`: every parameter is in one block, in order, blocks are nearly equal, and what was split can be joined."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples

from sgdlab.replay import MAX_BLOCKS, partition

check = settings(derandomize=True, deadline=None, max_examples=examples(150), database=None)
DTYPES = (np.float32, np.float64, np.float16)


@st.composite
def trees(draw, largest=5):
    """Nested trees; each element has a number of its own, in the order of the leaves."""
    shapes = draw(st.lists(st.lists(st.integers(1, largest), max_size=3).map(tuple), min_size=1, max_size=7))
    dtypes = [draw(st.sampled_from(DTYPES)) for _ in shapes]
    sizes = [math.prod(shape) for shape in shapes]
    numbers = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    with np.errstate(over="ignore"):  # half precision has no numbers as large as those of large trees
        leaves = [n.reshape(shape).astype(d) for n, shape, d in zip(numbers, shapes, dtypes, strict=True)]
    half = len(leaves) // 2
    return {"a": tuple(leaves[:half]), "b": {f"{index}": leaf for index, leaf in enumerate(leaves[half:])}}


def fits(tree, num_blocks):
    """The partition, or None where there are too many blocks."""
    try:
        return partition(tree, num_blocks)
    except ValueError:
        return None


def sizes_of_blocks(parts, tree):
    return [sum(np.size(array) for array in jax.tree.leaves(block)) for block in parts.split(tree)]


class TestPartition:
    @check
    @given(tree=trees(), num_blocks=st.integers(1, 12))
    def test_each_parameter_is_in_one_block_in_the_order_of_the_leaves(self, tree, num_blocks):
        parts = fits(tree, num_blocks)
        if parts is None:
            return
        blocks = parts.split(tree)
        assert parts.num_blocks == len(blocks) == num_blocks
        elements = np.concatenate([np.ravel(array) for array in jax.tree.leaves(blocks)])
        np.testing.assert_array_equal(elements, np.arange(elements.size))
        assert elements.size == sum(leaf.size for leaf in jax.tree.leaves(tree))
        assert min(sizes_of_blocks(parts, tree)) > 0

    @settings(check, max_examples=examples(30))  # each one compiles
    @given(tree=trees(), num_blocks=st.integers(1, 12))
    def test_what_was_split_can_be_joined(self, tree, num_blocks):
        parts = fits(tree, num_blocks)
        if parts is None:
            return
        joined = parts.join(parts.split(jax.tree.map(jnp.asarray, tree)))
        assert jax.tree.structure(joined) == jax.tree.structure(tree)
        for given_leaf, leaf in zip(jax.tree.leaves(joined), jax.tree.leaves(tree), strict=True):
            assert given_leaf.dtype == leaf.dtype
            np.testing.assert_array_equal(given_leaf, leaf, strict=True)
        again = parts.split(joined)
        shapes = lambda blocks: [[array.shape for array in jax.tree.leaves(block)] for block in blocks]
        assert shapes(again) == shapes(parts.split(tree))

    @check
    @given(tree=trees(largest=40), num_blocks=st.integers(1, 12))
    def test_blocks_are_nearly_equal(self, tree, num_blocks):
        parts = fits(tree, num_blocks)
        if parts is None:
            return
        sizes = sizes_of_blocks(parts, tree)
        largest = max(array.size for array in jax.tree.leaves(parts.split(tree)))
        assert max(sizes) <= sum(sizes) / num_blocks + largest

    @check
    @given(tree=trees(largest=40), num_blocks=st.integers(1, 12))
    def test_leaves_are_cut_only_where_they_are_larger_than_a_share(self, tree, num_blocks):
        parts = fits(tree, num_blocks)
        if parts is None:
            return
        leaves = jax.tree.leaves(tree)
        share = sum(leaf.size for leaf in leaves) / num_blocks
        pieces = [piece for block in parts.pieces for piece in block]
        # Cut into shares alone, the leaves can make too few pieces: then smaller ones are cut too.
        count = lambda leaf: min(leaf.shape[0], -(-leaf.size // share)) if leaf.ndim and leaf.size else 1
        enough = sum(count(leaf) for leaf in leaves) >= num_blocks
        for number, leaf in enumerate(leaves):
            own = [(first, past) for index, first, past in pieces if index == number]
            if leaf.size <= share and enough:
                assert own == [(None, None)]
            elif len(own) > 1:
                rows = [past - first for first, past in own]
                assert max(rows) - min(rows) <= 1
                assert sum(rows) == leaf.shape[0]

    @check
    @given(tree=trees())
    def test_one_block_is_the_whole_tree(self, tree):
        parts = partition(tree, 1)
        (block,) = parts.split(tree)
        assert block is tree
        assert parts.join((block,)) is tree

    @check
    @given(rows=st.integers(1, 50), columns=st.integers(1, 4), num_blocks=st.integers(1, 50))
    def test_one_leaf_is_cut_into_equal_parts(self, rows, columns, num_blocks):
        leaf = np.zeros((rows, columns))
        if num_blocks > rows:
            with pytest.raises(ValueError, match=f"num_blocks={num_blocks} must be at most {rows}"):
                partition(leaf, num_blocks)
            return
        lengths = [len(array) for array in jax.tree.leaves(partition(leaf, num_blocks).split(leaf))]
        assert sum(lengths) == rows
        assert set(lengths) <= {rows // num_blocks, -(-rows // num_blocks)}

    def test_shapes_are_enough(self):
        shapes = {"a": jax.ShapeDtypeStruct((6, 3), np.float32), "b": jax.ShapeDtypeStruct((), np.float32)}
        arrays = {"a": jnp.ones((6, 3)), "b": jnp.ones(())}
        assert partition(shapes, 3) == partition(arrays, 3)

    def test_is_equal_and_hashed_by_what_it_says(self):
        """A partition is a static argument of what is compiled: an equal one must compile nothing."""
        left, right = (partition({"a": jnp.full((6, 3), value)}, 3) for value in (0.0, 1.0))
        assert left == right
        assert hash(left) == hash(right)
        assert left != partition({"a": jnp.zeros((6, 3))}, 2)


class TestErrors:
    @pytest.mark.parametrize(
        ("tree", "num_blocks", "most"),
        [
            ({"a": np.ones(3)}, 4, 3),
            ({"a": np.ones(()), "b": np.ones((1, 7))}, 3, 2),
            ({"a": np.ones((2, 2)), "b": np.ones(2)}, 9, 4),
        ],
    )
    def test_too_many_blocks(self, tree, num_blocks, most):
        leaves = jax.tree.leaves(tree)
        total, arrays = sum(leaf.size for leaf in leaves), len(leaves)
        with pytest.raises(
            ValueError, match=f"num_blocks={num_blocks} must be at most {most}: the {total} parameters in {arrays} arra"
        ):
            partition(tree, num_blocks)

    @pytest.mark.parametrize("num_blocks", [0, -1, 1.5, True, "2", MAX_BLOCKS + 1])
    def test_what_is_no_number_of_blocks(self, num_blocks):
        with pytest.raises(
            ValueError, match=f"num_blocks={num_blocks!r} must be a whole number from 1 to {MAX_BLOCKS}"
        ):
            partition({"a": np.ones(3)}, num_blocks)

    def test_refuses_only_what_cannot_be_cut(self):
        """Rows can be cut apart: two and two."""
        assert partition({"a": np.ones((2, 10)), "b": np.ones(2)}, 4).num_blocks == 4

    def test_empty_leaves(self):
        tree = {"a": np.ones(4), "b": np.ones((0, 2)), "c": np.ones(4)}
        parts = partition(tree, 3)
        jax.tree.map(np.testing.assert_array_equal, parts.join(parts.split(tree)), tree)
