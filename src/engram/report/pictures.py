"""Records as pictures: PNG files made with the standard library, as addresses that need no other file.

ISO/IEC 15948:2004, Portable Network Graphics: chunks (5.3), the header (11.2.2), filter type 0 (9.2).
"""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from engram.types import Array

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOURS = {1: 0, 3: 2}  # channels -> colour type: grey, truecolour


def images(records: Array) -> Array | None:
    """The records as bytes [record, row, column, channel], or None where they are not pictures.

    One range for all of them: 0..1 and 0..255 are taken as they are, anything else is stretched.
    """
    placed = _channels_last(records)
    if placed is None or not placed.size or not np.issubdtype(placed.dtype, np.number):
        return None
    low, high = _range(placed)
    scaled = (placed.astype(np.float64) - low) / (high - low)
    return np.clip(np.rint(scaled * 255), 0, 255).astype(np.uint8)


def address(image: Array) -> str:
    """A picture [row, column, channel] as a data URI."""
    return f"data:image/png;base64,{base64.b64encode(png(image)).decode()}"


def png(image: Array) -> bytes:
    """A picture [row, column, channel] of bytes as a file; one channel is grey, three are red, green, blue."""
    rows, columns, channels = image.shape
    header = struct.pack(">IIBBBBB", columns, rows, 8, COLOURS[channels], 0, 0, 0)
    lines = np.zeros((rows, 1 + columns * channels), np.uint8)  # each begins with its filter type, 0
    lines[:, 1:] = image.reshape(rows, -1)
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)) + _chunk(b"IEND")


def _chunk(kind: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _channels_last(records: Array) -> Array | None:
    if records.ndim == 3 and min(records.shape[1:]) > 1:
        return records[..., None]
    if records.ndim != 4 or min(records.shape[1:]) < 1:
        return None
    if records.shape[1] in COLOURS:
        return np.moveaxis(records, 1, -1)
    return records if records.shape[3] in COLOURS else None


def _range(values: Array) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    if low >= 0 and high <= 255 and (high > 2 or values.dtype == np.uint8):
        return 0.0, 255.0
    return low, high
