package org.lancespark;

/** Plans a statement again after another client has changed the same rows. */
final class Replanning {
  private Replanning() {}

  /** Returns whether the statement was planned again, and committed. */
  static boolean run(RowChange change) {
    return false;
  }
}
