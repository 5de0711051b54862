"""Starts the kernels of nbval so that no other program can take their ports: a provisioner of jupyter_client.

The tests of the notebooks choose it (``conftest.py``). `coursebook.execution` sets these options itself.
"""

import shutil
import tempfile
from typing import Any

from jupyter_client.provisioning import LocalProvisioner


class SocketFileProvisioner(LocalProvisioner):
    """Starts a kernel on this machine that listens on socket files in a folder of its own.

    A TCP port is free when it is chosen, and may be taken before the kernel binds it
    (https://github.com/jupyter/jupyter_client/issues/154).
    """

    folder = None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Choose the transport and the place of the socket files before the connection file is written."""
        if self.folder is None:  # else the kernel is started again
            self.folder = tempfile.mkdtemp()
            self.parent.transport, self.parent.ip = "ipc", f"{self.folder}/kernel"
        return await super().pre_launch(**kwargs)

    async def cleanup(self, restart: bool = False) -> None:
        """Delete the folder of the socket files, unless the kernel is started again."""
        await super().cleanup(restart)
        if self.folder and not restart:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None
