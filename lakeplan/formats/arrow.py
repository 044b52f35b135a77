"""Arrow arrays of Python values."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def array_of(values: Collection[object] | npt.NDArray[Any] | pa.Array, kind: pa.DataType) -> pa.Array:
    """As ``pa.array``, which imports pandas for anything but numpy's arrays: a fifth of a second."""
    if isinstance(values, pa.Array):
        return values.cast(kind)
    if not isinstance(values, np.ndarray):
        found = np.empty(len(values), object)
        found[:] = list(values)
        values = found
    return pa.array(values, kind)
