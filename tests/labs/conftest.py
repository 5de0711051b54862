import pytest

from coursegrader.worker import Worker


@pytest.fixture(scope="session")
def worker(bubblewrap):
    """A worker with enough time for all answers to a lab in one notebook."""
    worker = Worker(total=3600)
    yield worker
    worker.close()
