package org.lancespark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

/**
 * A reply of Python inside of a pickle: a JSON header, and bytes behind it. See
 * `lance_spark/spark/replies.py`.
 */
final class Reply {
  private static final byte[] MARK = mark();
  private static final int LENGTHS = 8;
  private static final ObjectMapper JSON = new ObjectMapper();

  /** The values of the header. */
  final Map header;

  /** Where the data stand, and where in it. */
  final byte[] bytes;

  final int start;
  final int length;

  private Reply(Map header, byte[] bytes, int start, int length) {
    this.header = header;
    this.bytes = bytes;
    this.start = start;
    this.length = length;
  }

  /** Returns the reply of a kind in a pickle, or null if there is none. */
  static Reply in(byte[] pickle, String kind) {
    int at = indexOfMark(pickle);
    if (at < 0 || at + MARK.length + LENGTHS > pickle.length) {
      return null;
    }
    ByteBuffer lengths = ByteBuffer.wrap(pickle, at + MARK.length, LENGTHS);
    int header = lengths.getInt();
    int data = lengths.getInt();
    int start = at + MARK.length + LENGTHS;
    if (header < 0 || data < 0 || (long) header + data > pickle.length - start) {
      return null;
    }
    try {
      String text = new String(pickle, start, header, StandardCharsets.UTF_8);
      Map values = (Map) JSON.readValue(text, Map.class);
      return kind.equals(values.get("kind"))
          ? new Reply(values, pickle, start + header, data)
          : null;
    } catch (IOException e) {
      // Bytes of a user that look like a reply.
      return null;
    }
  }

  /** Returns the numbers of a list in the header. */
  long[] numbers(String key) {
    List list = (List) header.get(key);
    long[] numbers = new long[list.size()];
    for (int i = 0; i < numbers.length; i++) {
      numbers[i] = ((Number) list.get(i)).longValue();
    }
    return numbers;
  }

  private static int indexOfMark(byte[] pickle) {
    for (int i = 0; i + MARK.length <= pickle.length; i++) {
      int n = 0;
      while (n < MARK.length && pickle[i + n] == MARK[n]) {
        n++;
      }
      if (n == MARK.length) {
        return i;
      }
    }
    return -1;
  }

  private static byte[] mark() {
    // The first and the last byte occur in no UTF-8.
    return "\u00fflance-reply\u00ff".getBytes(StandardCharsets.ISO_8859_1);
  }
}
