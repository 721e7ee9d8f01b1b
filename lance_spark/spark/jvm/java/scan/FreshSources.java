package org.lancespark;

/** What a scan reads of the MemWAL of its table. */
final class FreshSources {
  final long sstables;
  final long entries;

  private FreshSources(long sstables, long entries) {
    this.sstables = sstables;
    this.entries = entries;
  }

  /** Parses a text such as "5/17": SSTables, WAL entries. */
  static FreshSources parse(String text) {
    String[] parts = text.split("/");
    return new FreshSources(Long.parseLong(parts[0]), Long.parseLong(parts[1]));
  }

  /** Returns the text of EXPLAIN. */
  public String toString() {
    return sstables + " SSTables, " + entries + " WAL entries";
  }
}
