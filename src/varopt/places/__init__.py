"""Where rows live when they are not in memory: files, chunks, clusters and devices, read part by part."""

from varopt.places._device import DeviceColumn, OnDevice, Place, is_device_array, to_host
from varopt.places._stored import DataColumn, DataPart, Derived, Stored, Table, at, columns_in, joined
from varopt.places._together import as_stored, rows, table_of

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
    "is_device_array",
    "joined",
    "rows",
    "table_of",
    "to_host",
]
