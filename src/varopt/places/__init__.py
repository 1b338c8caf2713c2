"""Where rows live when they are not in memory: files, chunks, clusters and devices, read part by part."""

from typing import TYPE_CHECKING

from varopt._lazy import on_first_use
from varopt.places._device import DeviceColumn, OnDevice, Place, is_device_array, to_host
from varopt.places._stored import DataColumn, DataPart, Derived, Stored, Table, at, columns_in, joined

if TYPE_CHECKING:
    from varopt.places._held import held_columns
    from varopt.places._together import as_stored, rows, table_of

# What reads files and clusters is loaded when data are handed over that are no array in memory.
__getattr__, __dir__ = on_first_use(
    __name__,
    dict.fromkeys(("as_stored", "rows", "table_of"), "varopt.places._together")
    | {"held_columns": "varopt.places._held"},
)

__all__ = [
    "DataColumn",
    "DataPart",
    "Derived",
    "DeviceColumn",
    "OnDevice",
    "Place",
    "Stored",
    "Table",
    "as_stored",
    "at",
    "columns_in",
    "held_columns",
    "is_device_array",
    "joined",
    "rows",
    "table_of",
    "to_host",
]
