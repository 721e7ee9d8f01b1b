"""Reviews of two shops, as they arrive, in one table; then with a vector of each text."""

import zlib
from collections.abc import Iterator

import numpy as np
import pandas as pd
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

spark = SparkSession.active()
DIMENSION = 64


@sf.pandas_udf("array<float>")
def embed(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    """Return vectors of length 1 of the words of texts. Load a language model here instead."""
    for texts in batches:
        vectors = np.zeros((len(texts), DIMENSION), np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                vectors[row, zlib.crc32(word.encode()) % DIMENSION] += 1
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1)
        yield pd.Series(list(vectors))


def arriving(shop: str) -> DataFrame:
    folder = f"{spark.conf.get('reviews.input')}/{shop}"
    reviews = spark.readStream.schema("id long, stars int, text string").json(folder)
    return reviews.withColumn("shop", sf.lit(shop))


dp.create_streaming_table("reviews", comment="as they arrived")


@dp.append_flow(target="reviews")
def from_books() -> DataFrame:
    return arriving("books")


@dp.append_flow(target="reviews")
def from_games() -> DataFrame:
    return arriving("games")


@dp.table(table_properties={"vector.arrow.fixed-size-list.size": str(DIMENSION)})
def searchable() -> DataFrame:
    return spark.readStream.table("reviews").withColumn("vector", embed("text"))


@dp.temporary_view
def liked() -> DataFrame:
    return spark.read.table("searchable").where("stars >= 4")
