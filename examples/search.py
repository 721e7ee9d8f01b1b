"""A search engine over the documentation of functions: by vectors, by words, and by both.

The texts are the docstrings of numpy, pyarrow and PySpark. Each text gets a vector: the counts of
its words and of parts of words, weighted by rarity, and projected to 64 dimensions (latent semantic
analysis). A real table would have the vectors of a language model instead.

python examples/search.py [folder]
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pyarrow.compute
from pyspark.sql import SparkSession, functions

import lance_spark
from lance_spark import LanceTable

DIMENSION = 64
#: A term is kept if so many texts have it, at least.
LEAST_TEXTS = 3


def documents(modules: list[ModuleType]) -> pd.DataFrame:
    """Return the public functions of some modules, with what their docstrings say first."""
    rows = {}
    for module in modules:
        for name, function in inspect.getmembers(module, callable):
            text = inspect.getdoc(function) or ""
            # The summary ends where the section of the parameters begins.
            text = re.split(r"\n(?:Parameters|\.\. version|[^\n]*\n-{4,})", text)[0]
            words = " ".join(text.split())
            if not name.startswith("_") and len(words) > 20:
                rows[f"{module.__name__}.{name}"] = words
    return pd.DataFrame({"name": rows.keys(), "text": rows.values()})


def terms(text: str) -> Iterator[str]:
    """Yield the words of a text and their parts of four letters."""
    for word in re.findall(r"[a-z]{2,}", text.lower()):
        yield word
        yield from (word[start : start + 4] for start in range(len(word) - 4))


class Embedding:
    """Turns texts into vectors of length 1, as it learned from some texts."""

    def __init__(self, texts: list[str]) -> None:
        frequency = Counter(term for text in texts for term in set(terms(text)))
        known = sorted(term for term, count in frequency.items() if count >= LEAST_TEXTS)
        self.places = {term: place for place, term in enumerate(known)}
        self.weights = np.log(len(texts) / np.array([frequency[term] for term in known]))
        counts = self._counts(texts)
        _, singular = np.linalg.eigh(counts @ counts.T)
        directions = counts.T @ singular[:, : -DIMENSION - 1 : -1]
        self.directions = directions / np.linalg.norm(directions, axis=0)

    def _counts(self, texts: list[str]) -> np.ndarray:
        counts = np.zeros((len(texts), len(self.places)))
        for row, text in enumerate(texts):
            for term, count in Counter(terms(text)).items():
                if term in self.places:
                    counts[row, self.places[term]] = 1 + np.log(count)
        counts *= self.weights
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)

    def vectors(self, texts: list[str]) -> np.ndarray:
        """Return an array of shape (texts, DIMENSION)."""
        vectors = self._counts(texts) @ self.directions
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        return vectors.astype(np.float32)


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    path = str(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-data").absolute() / "search")
    shutil.rmtree(path, ignore_errors=True)
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    lance_spark.enable(spark)

    # 1. A table of texts and vectors.
    docs = documents([functions, np, pyarrow.compute])
    embedding = Embedding(list(docs.text))
    docs["vector"] = embedding.vectors(list(docs.text)).tolist()
    frame = spark.createDataFrame(docs, "name string, text string, vector array<float>")
    (
        frame.write.format("lance")
        .option("vector.arrow.fixed-size-list.size", DIMENSION)
        .mode("overwrite")
        .save(path)
    )
    table = LanceTable.forPath(spark, path)
    print(len(docs), "functions,", len(embedding.places), "terms")

    # 2. Indexes: approximate search of vectors, and full-text search.
    table.create_index("vector", "IVF_PQ", metric="cosine", num_partitions=16, num_sub_vectors=16)
    table.create_index("text", "INVERTED")

    # 3. What is like a sentence?
    question = "compute the angle whose tangent is the quotient"
    (vector,) = embedding.vectors([question]).tolist()
    print(f"\nnearest to {question!r}")
    table.nearest("vector", vector, k=5, nprobes=4, refine_factor=4).select(
        "name", "_distance"
    ).show(truncate=False)

    # 4. Words and meaning together.
    print("with the word 'arctan', too")
    table.hybrid_search("arctan", vector, k=5, column="vector").select(
        "name", "_relevance_score"
    ).show(truncate=False)

    # 5. Many queries at once: for each function of PySpark, the nearest one of numpy.
    queries = table.toDF(["name", "vector"]).where("name LIKE 'pyspark.%'")
    queries = queries.withColumnRenamed("name", "of_spark")
    pairs = table.nearest_join(queries, on="vector", k=1, filter="name LIKE 'numpy.%'")
    pairs.select("of_spark", "name", "_distance").orderBy("_distance").show(8, truncate=False)

    # 6. How many of the true neighbours does the index find?
    print("recall:", table.index_recall("vector_idx", sample=50, k=10))
    spark.stop()


if __name__ == "__main__":
    main()
