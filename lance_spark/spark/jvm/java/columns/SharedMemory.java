package org.lancespark;

import java.io.File;
import java.io.IOException;
import java.lang.invoke.VarHandle;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.spark.unsafe.Platform;

/**
 * Memory that a Python worker fills with batches, and that this JVM reads in place.
 *
 * <p>The worker describes it in `pushdown/shared_memory.py`. It cannot make the memory smaller, so
 * that a read is always within it. The memory stays mapped after the worker has ended.
 *
 * <pre>
 *   int64 at 0     id, by which a mapping of an earlier worker with the same name is recognised
 *   int64 at 8     1 when this JVM has mapped the memory
 *   int64 at 16    number of the last batch that this JVM has read
 *   batches        where the worker says
 * </pre>
 */
final class SharedMemory {
  private static final int OPENED = 8;
  private static final int RELEASED = 16;
  private static final int HEADER = 24;

  /** The memories of living workers, by their names. */
  private static final Map OPEN = new HashMap();

  private final MappedByteBuffer memory;
  private final long start;

  private SharedMemory(MappedByteBuffer memory) {
    this.memory = memory;
    this.start = MemoryUtil.getByteBufferAddress(memory);
  }

  /** Returns the memory of a worker, mapped by the first call; null if it cannot be mapped. */
  static synchronized SharedMemory open(String name, long id) {
    SharedMemory known = (SharedMemory) OPEN.get(name);
    if (known != null && known.id() == id) {
      return known;
    }
    try {
      forgetEnded();
      SharedMemory opened = new SharedMemory(map(name));
      if (opened.id() != id) {
        return null;
      }
      Platform.putLong(null, opened.start + OPENED, 1L);
      OPEN.put(name, opened);
      return opened;
    } catch (Exception e) {
      Log.leftToSpark("shared memory", e);
    } catch (LinkageError e) {
      Log.leftToSpark("shared memory", e);
    }
    return null;
  }

  private static MappedByteBuffer map(String name) throws IOException {
    FileChannel file =
        FileChannel.open(Paths.get(name), StandardOpenOption.READ, StandardOpenOption.WRITE);
    try {
      long size = file.size();
      if (size < HEADER || size > Integer.MAX_VALUE) {
        throw new IOException(name + " has " + size + " bytes");
      }
      return file.map(FileChannel.MapMode.READ_WRITE, 0L, size);
    } finally {
      file.close();
    }
  }

  private static void forgetEnded() {
    Iterator names = OPEN.keySet().iterator();
    while (names.hasNext()) {
      if (!new File((String) names.next()).exists()) {
        names.remove();
      }
    }
  }

  private long id() {
    return Platform.getLong(null, start);
  }

  /** Returns the address of bytes, which must be within the memory. */
  long address(long offset, long length) {
    if (offset < HEADER || length < 0 || length > memory.capacity() - offset) {
      throw Body.malformed(length + " bytes at " + offset + " are outside of the shared memory");
    }
    return start + offset;
  }

  /** Lets the worker overwrite all batches up to a number. */
  void release(long number) {
    // No read of a batch may follow.
    VarHandle.fullFence();
    Platform.putLong(null, start + RELEASED, number);
  }
}
