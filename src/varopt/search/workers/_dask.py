"""What Dask leaves undone where workers die."""

from __future__ import annotations

from typing import Any

__all__ = ["DaskCare"]

IDLE = 5  # looks in turn at workers that have nothing to do, after which what we wait for has been lost


class DaskCare:
    """Looks after the workers of a `dask.distributed` Client while nothing is finished.

    A cluster gives a worker up that died and is not there again after `distributed.deploy.lost-worker-timeout`, and
    never begins another: one that the client knows is asked for it. And a result that was on a worker when it died may
    be waited for although nobody computes it again.

    Parameters
    ----------
    client : distributed.Client
        The client that evaluations are submitted to.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._idle = 0

    def __call__(self) -> bool:
        """Whether all workers have been idle, though something is under way."""
        cluster = getattr(self._client, "cluster", None)
        wanted = len(getattr(cluster, "worker_spec", ()))
        if cluster is not None and len(getattr(cluster, "workers", ())) < wanted:
            cluster.scale(wanted)
        busy = self._client.processing()
        self._idle = self._idle + 1 if busy and not any(busy.values()) else 0
        if self._idle < IDLE:
            return False
        self._idle = 0
        return True
