"""Selects how files are written on a store that is not a local disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lance_spark.storage.google import is_google, is_zonal
from lance_spark.storage.options.fsspec_options import family_of
from lance_spark.storage.remote import RemoteOutput
from lance_spark.storage.retry import Retries
from lance_spark.storage.s3 import is_s3
from lance_spark.storage.write import azure as upload_azure
from lance_spark.storage.write import google as upload_google
from lance_spark.storage.write.multipart import PartSizes
from lance_spark.storage.write.output import OutputFile
from lance_spark.storage.write.s3 import S3Output


def start(
    scheme: str,
    fs: Any,
    path: str,
    name: str,
    options: Mapping[str, Any],
    retries: Retries,
    secrets: Mapping[str, object],
    *,
    replace: bool,
) -> OutputFile:
    """Open a new file.

    Parameters
    ----------
    scheme : str
    fs : fsspec file system
    path : str
        Path of the file.
    name : str
        Name of the file in errors.
    options : mapping
        Storage options.
    retries : Retries
    secrets : mapping
        Options whose values no error shows.
    replace : bool
        Whether `close` replaces an existing file.

    Raises
    ------
    InvalidOptionError, StorageError
    """
    if is_s3(fs):
        sizes = PartSizes.of(options, fs)
        return S3Output(fs, path, name, sizes, retries, secrets, replace=replace)
    if family_of(scheme) == "azure" and hasattr(fs, "service_client"):
        sizes = upload_azure.sizes_of(options)
        return upload_azure.AzureOutput(fs, path, name, sizes, retries, secrets, replace=replace)
    if is_google(fs) and not is_zonal(fs, path):
        sizes = upload_google.sizes_of(options)
        return upload_google.GoogleOutput(fs, path, name, sizes, retries, secrets, replace=replace)
    return RemoteOutput(fs, path, name, secrets, replace=replace)
