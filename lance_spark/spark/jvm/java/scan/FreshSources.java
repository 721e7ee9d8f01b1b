package org.lancespark;

/** What a scan reads of the MemWAL of its table. */
final class FreshSources {
  final long shards;
  final long sstables;
  final long entries;

  private FreshSources(long shards, long sstables, long entries) {
    this.shards = shards;
    this.sstables = sstables;
    this.entries = entries;
  }

  /** Parses a text such as "2/5/17": shards, SSTables, WAL entries. */
  static FreshSources parse(String text) {
    String[] parts = text.split("/");
    return new FreshSources(
        Long.parseLong(parts[0]), Long.parseLong(parts[1]), Long.parseLong(parts[2]));
  }

  /** Returns the text of EXPLAIN. */
  public String toString() {
    return shards + " shards, " + sstables + " SSTables, " + entries + " WAL entries";
  }
}
