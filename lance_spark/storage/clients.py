"""Clients of stores whose credentials expire: each request has the newest credentials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lance_spark.storage import google, s3
from lance_spark.storage.options.fsspec_options import CREDENTIALS, family_of
from lance_spark.storage.renewal import RenewedArguments
from lance_spark.storage.write import azure


def renewing(
    arguments: RenewedArguments,
    options: Mapping[str, Any],
    connect: Callable[[Mapping[str, Any]], Any],
) -> Any:
    """Return the file system of a store. Stores with the same credentials share it.

    The packages of other stores keep the credentials that they begin with.

    Parameters
    ----------
    options : mapping
        Arguments of the file system.
    connect : callable
        Makes a file system of arguments.
    """
    family = family_of(arguments.scheme)
    if family is None:
        return connect(options)
    secret = CREDENTIALS[family] if arguments.credentials.is_renewable else ()
    shown = sorted((name, repr(value)) for name, value in options.items() if name not in secret)

    def make() -> Any:
        # The cache of fsspec would give one client to tables with other sources, too.
        given = {**options, "skip_instance_cache": True}
        if family == "google" and "token" in given:
            given["token"] = google.token_object(given["token"])
        fs = connect(given)
        {"s3": s3.renew, "google": google.renew, "azure": azure.renew}[family](fs, arguments)
        return fs

    return arguments.credentials.client((arguments.scheme, *shown), make)
