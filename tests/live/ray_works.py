"""Work of workers that are actors: worker `slow` takes for ever, and so do others after `COUNT` gradients of a run."""

import process_works

from sgdlab.live.work import Work

COUNT = 3


def plus(argument) -> Work:
    seconds = lambda worker, k: process_works.FOR_EVER if worker == argument["slow"] or k >= COUNT else 0.0
    return process_works.plus({})._replace(seconds=seconds)
