package org.lancespark;

import org.apache.spark.sql.catalyst.expressions.UnsafeArrayData;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** Makes arrays of numbers of the bytes of their items, in expressions of generated code. */
public final class PackedArray {
  private PackedArray() {}

  /**
   * Copies the items of an array.
   *
   * @param items bytes where a batch holds them, of which no byte[] is made first
   * @param width bytes of an item
   */
  public static UnsafeArrayData of(UTF8String items, int width) {
    int bytes = items.numBytes();
    int length = bytes / width;
    long header = UnsafeArrayData.calculateHeaderPortionInBytes(length);
    int size = Math.toIntExact((header + bytes + 7L) / 8L * 8L);
    long[] array = new long[size / 8];
    array[0] = length;
    Platform.copyMemory(
        items.getBaseObject(),
        items.getBaseOffset(),
        array,
        Platform.LONG_ARRAY_OFFSET + header,
        (long) bytes);
    UnsafeArrayData data = new UnsafeArrayData();
    data.pointTo(array, Platform.LONG_ARRAY_OFFSET, size);
    return data;
  }
}
