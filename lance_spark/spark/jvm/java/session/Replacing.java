package org.lancespark;

import scala.Function1;
import scala.runtime.AbstractPartialFunction;

/** Replaces some nodes of a plan or expression: those for which it is defined. */
abstract class Replacing extends AbstractPartialFunction {
  /** Returns what stands in the place of a node for which this is defined. */
  abstract Object replaced(Object node);

  public Object applyOrElse(Object node, Function1 otherwise) {
    return isDefinedAt(node) ? replaced(node) : otherwise.apply(node);
  }
}
