"""The pool of threads for kernels that release the GIL."""

import os
import threading

import pytest

from relatum.kernels.threads import run_chunks


@pytest.mark.parametrize("threads", [None, 1, 2, 7])
def test_every_part_is_run_once(threads):
    done = []
    run_chunks(lambda a, b: done.append((a, b)), [(n, -n) for n in range(50)], threads)
    assert sorted(done) == [(n, -n) for n in range(50)]


def test_an_error_reaches_the_caller_from_any_thread():
    def fail(number):
        if number == 7:
            raise ValueError("part seven")

    for threads in (1, 4):
        with pytest.raises(ValueError, match="part seven"):
            run_chunks(fail, [(n,) for n in range(20)], threads)


def test_jobs_may_be_nested_and_concurrent():
    done = []

    def outer(number):
        run_chunks(lambda inner: done.append((number, inner)), [(n,) for n in range(5)], 4)

    callers = [threading.Thread(target=run_chunks, args=(outer, [(c,) for c in range(10)], 4)) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=60)
        assert not caller.is_alive()
    assert len(done) == 8 * 10 * 5


def test_more_than_one_thread_takes_part():
    meet = threading.Barrier(2, timeout=30)
    run_chunks(lambda _: meet.wait(), [(0,), (1,)], 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_a_pool_of_its_own():
    run_chunks(lambda _: None, [(n,) for n in range(4)], 2)  # the parent's pool exists
    child = os.fork()
    if child == 0:
        try:
            meet = threading.Barrier(2, timeout=20)
            run_chunks(lambda _: meet.wait(), [(0,), (1,)], 2)
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
