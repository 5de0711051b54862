"""Messages over a socket, each preceded by its length."""

import socket
import struct
import time

from coursegrader.protocol import Malformed

MAX_BYTES = 64 * 2**20


class Closed(Exception):
    """The other side is gone."""


class TooLate(Exception):
    """No answer came in time."""


def send(connection: socket.socket, message: bytes, deadline: float | None = None) -> None:
    """Send one message; the deadline is a value of `time.monotonic`. Raises `Closed` or `TooLate`."""
    try:
        connection.settimeout(deadline and max(0.001, deadline - time.monotonic()))
        connection.sendall(struct.pack("<Q", len(message)) + message)
    except TimeoutError:
        raise TooLate from None
    except OSError:
        raise Closed from None


def receive(connection: socket.socket, deadline: float | None = None, most: int = 2 * MAX_BYTES) -> bytes:
    """Receive one message.

    Parameters
    ----------
    connection : socket.socket
    deadline : float, optional
        The value of `time.monotonic` after which `TooLate` is raised.
    most : int
        Maximum number of bytes.

    Raises
    ------
    Closed, TooLate
    coursegrader.protocol.Malformed
        If the message has more than `most` bytes.
    """
    (size,) = struct.unpack("<Q", _read(connection, 8, deadline))
    if size > most:
        raise Malformed("the answer is too large")
    return _read(connection, size, deadline)


def first(data: bytearray, most: int) -> bytes | None:
    """Remove the first message from `data` and return it, or return None if it is not complete.

    Raises
    ------
    coursegrader.protocol.Malformed
        If it has more than `most` bytes.
    """
    if len(data) < 8:
        return None
    (size,) = struct.unpack_from("<Q", data)
    if size > most:
        raise Malformed("the answer is too large")
    if len(data) < 8 + size:
        return None
    message = bytes(data[8 : 8 + size])
    del data[: 8 + size]
    return message


def _read(connection, size, deadline):
    data = bytearray()
    while len(data) < size:
        if deadline is None:
            connection.settimeout(None)
        else:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TooLate
            connection.settimeout(remaining)
        try:
            part = connection.recv(min(size - len(data), 2**20))
        except TimeoutError:
            raise TooLate from None
        except OSError:
            raise Closed from None
        if not part:
            raise Closed
        data += part
    return bytes(data)
