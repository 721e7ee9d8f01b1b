package org.lancespark;

import java.io.File;
import java.io.IOException;
import java.lang.invoke.VarHandle;
import java.lang.ref.WeakReference;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.spark.unsafe.Platform;

/**
 * Memory that a Python worker fills with batches, and that this JVM reads in place.
 *
 * <p>The worker describes it in `pushdown/shared_memory.py`. It cannot make the memory smaller, so
 * that a read is always within it. The memory stays mapped after the worker has ended, until the
 * JVM collects the last column that refers to it.
 *
 * <pre>
 *   int64 at 0     id, by which a mapping of an earlier worker with the same name is recognised
 *   int64 at 8     1 when this JVM has mapped the memory
 *   int64 at 16    number of the last batch that this JVM has read
 *   batches        where the worker says
 * </pre>
 */
final class SharedMemory {
  private static final int MAPPED = 8;
  private static final int RELEASED = 16;
  private static final int HEADER = 24;

  /** What the name of such a file is a link to. */
  private static final String TARGET = "/memfd:lance_spark";

  /** Number of memories of ended workers after which the JVM is asked to collect garbage. */
  private static final int MOST_ENDED = 20;

  /** The memories of living workers, by their names. */
  private static final Map OPEN = new HashMap();

  /** References to memories of ended workers. */
  private static final List ENDED = new ArrayList();

  /** Number of failed mappings that are remembered. */
  private static final int MOST_FAILED = 1000;

  /** Names and ids of memories that could not be mapped. */
  private static final Set FAILED = new HashSet();

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
    if (FAILED.contains(name + id)) {
      return null;
    }
    try {
      forgetEnded();
      SharedMemory opened = new SharedMemory(map(name));
      if (opened.id() != id) {
        throw new IOException(name + " has another id");
      }
      Platform.putLong(null, opened.start + MAPPED, 1L);
      OPEN.put(name, opened);
      return opened;
    } catch (Exception e) {
      Log.once("batches of workers are sent over sockets, not in shared memory: " + e);
    } catch (LinkageError e) {
      Log.once("batches of workers are sent over sockets, not in shared memory: " + e);
    }
    if (FAILED.size() >= MOST_FAILED) {
      FAILED.clear();
    }
    FAILED.add(name + id);
    return null;
  }

  private static MappedByteBuffer map(String name) throws IOException {
    Path path = Paths.get(name);
    String target = Files.readSymbolicLink(path).toString();
    if (!target.startsWith(TARGET)) {
      throw new IOException(name + " is " + target);
    }
    FileChannel file =
        FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE);
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

  /** Drops the memories of workers that have ended. */
  static synchronized void forgetEnded() {
    Iterator opened = OPEN.entrySet().iterator();
    while (opened.hasNext()) {
      Map.Entry entry = (Map.Entry) opened.next();
      if (!new File((String) entry.getKey()).exists()) {
        ENDED.add(new WeakReference(entry.getValue()));
        opened.remove();
      }
    }
    Iterator ended = ENDED.iterator();
    while (ended.hasNext()) {
      if (((WeakReference) ended.next()).get() == null) {
        ended.remove();
      }
    }
    if (ENDED.size() > MOST_ENDED) {
      // The JVM does not know how much memory its mappings hold.
      ENDED.clear();
      System.gc();
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
