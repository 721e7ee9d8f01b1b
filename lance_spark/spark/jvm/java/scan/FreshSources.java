package org.lancespark;

/** What a scan reads of the MemWAL of its table. */
final class FreshSources {
  final long sstables;
  final long entries;

  /** Takes the numbers of SSTables and of WAL entries. */
  FreshSources(long[] numbers) {
    this.sstables = numbers[0];
    this.entries = numbers[1];
  }

  /** Returns the text of EXPLAIN. */
  public String toString() {
    return sstables + " SSTables, " + entries + " WAL entries";
  }
}
