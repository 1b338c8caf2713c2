"""Arrays of PyTorch, CuPy and JAX, where they are: on an accelerator, or on the processor."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_cupy_array, is_jax_array, is_torch_array, size
from numpy.typing import NDArray

from varopt.places._stored import DataColumn, DataPart, Table

__all__ = ["DeviceColumn", "OnDevice", "Place", "is_device_array", "on_device", "to_host"]

_SMALL = 1 << 17  # entries up to which an array is brought here


def is_device_array(value: Any) -> bool:
    """Whether it is an array of a library for devices."""
    if isinstance(value, (np.ndarray, float, int)):
        return False
    return bool(is_torch_array(value) or is_cupy_array(value) or is_jax_array(value))


def lies_elsewhere(value: Any) -> bool:
    """Whether it is a large array on a device that is not the processor."""
    if not is_device_array(value) or (size(value) or 0) <= _SMALL:
        return False
    return "cpu" not in str(device(value)).lower()


def to_host(array: Any) -> NDArray[Any]:
    """As an array of NumPy."""
    if is_torch_array(array):
        array = array.detach().cpu()
        return np.asarray((array.float() if "bfloat16" in str(array.dtype) else array).numpy())
    if is_cupy_array(array):
        return np.asarray(array.get())
    return np.asarray(array)


class Place:
    """Makes arrays of NumPy such as another is: of its library, and on its device."""

    def __init__(self, array: Any) -> None:
        self.xp, self.device = array_namespace(array), device(array)

    def __call__(self, array: Any) -> Any:
        return self.xp.asarray(array, device=self.device)

    def __deepcopy__(self, memo: Any) -> Place:
        return self

    def __reduce__(self) -> Any:
        return type(None), ()  # another process may have no such device, and gets arrays of NumPy


class OnDevice(Table):
    """Arrays of one length on one device."""

    def __init__(self, array: Any) -> None:
        self.bring = Place(array)
        self.xp, self.device = self.bring.xp, self.bring.device
        self.count = int(array.shape[0])
        self.where = f"on device {self.device}"
        if "meta" in str(self.device):
            raise ValueError("an array on the device meta has no entries: give one that does.")
        self._check_doubles(array)

    def _check_doubles(self, array: Any) -> None:
        if is_jax_array(array) and not sys.modules["jax"].config.jax_enable_x64:
            raise ValueError(
                "JAX needs double precision for proofs: call jax.config.update('jax_enable_x64', True) first."
            )
        try:
            self.xp.astype(array[:1], self.xp.float64)
        except (TypeError, RuntimeError) as reason:
            raise ValueError(f"the device {self.device} has no double precision, which proofs need.") from reason

    def parts(self, columns: Sequence[DataColumn], rows: int) -> Iterator[Callable[[], DataPart]]:
        """Copies on the host, part by part."""
        for start in range(0, self.count, rows):
            index = slice(start, min(start + rows, self.count))
            yield lambda index=index: self._brought(columns, index)  # type: ignore[misc]

    def _brought(self, columns: Sequence[DataColumn], index: Any) -> DataPart:
        return DataPart(index, {c.key: to_host(c.array[index]) for c in columns if isinstance(c, DeviceColumn)})

    def sample(self, columns: Sequence[DataColumn], rows: int, rng: np.random.Generator) -> DataPart:
        """One row at random in each of as many equal parts."""
        edges = np.linspace(0, self.count, min(rows, self.count) + 1).astype(np.intp)
        index = edges[:-1] + (rng.random(edges.size - 1) * np.diff(edges)).astype(np.intp)
        return self.rows(columns, index)

    def rows(self, columns: Sequence[DataColumn], index: NDArray[np.intp], there: Any = None) -> DataPart:
        """Some rows, on the host; their places may be on the device already."""
        there = self.xp.asarray(index, device=self.device) if there is None else there
        taken = {c.key: to_host(_taken(self.xp, c.array, there)) for c in columns if isinstance(c, DeviceColumn)}
        return DataPart(index, taken)


class DeviceColumn(DataColumn):
    """An array on a device, as it is."""

    def __init__(self, table: OnDevice, array: Any, name: str = "") -> None:
        super().__init__(table, tuple(array.shape), np.float32 if "float32" in str(array.dtype) else np.float64, name)
        self.array = array


def on_device(X: Any, y: Any = None, weight: Any = None) -> list[DeviceColumn | None]:
    """Arrays of one length as the columns of a table."""
    for name, array in (("X", X), ("y", y), ("weight", weight)):
        if is_device_array(array) and array_namespace(array).isdtype(array.dtype, "complex floating"):
            raise ValueError(f"{name} must hold real numbers; got {array.dtype}.")
    table = OnDevice(X)
    columns: list[DeviceColumn | None] = []
    for name, array in (("X", X), ("y", y), ("weight", weight)):
        if array is None:
            columns.append(None)
            continue
        if not is_device_array(array):
            array = table.xp.asarray(np.asarray(array), device=table.device)
        if is_torch_array(array) and array.requires_grad:
            array = array.detach()
        if device(array) != table.device:
            raise ValueError(f"{name} must be on device {table.device}, as X is; got {device(array)}.")
        if array.shape[0] != table.count:
            raise ValueError(f"data must have one number of rows; got {table.count} and {array.shape[0]}.")
        columns.append(DeviceColumn(table, array, name))
    return columns


def _taken(xp: Any, array: Any, index: Any) -> Any:
    """Some rows; of PyTorch in one call, where the standard's asks after negative places first."""
    return array.index_select(0, index) if is_torch_array(array) else xp.take(array, index, axis=0)
