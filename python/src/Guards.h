//===- Guards.h - whether what a program has read is unchanged --*- C++ -*-===//

#ifndef KOILA_PYTHON_GUARDS_H
#define KOILA_PYTHON_GUARDS_H

#include <cstdint>
#include <pybind11/pybind11.h>
#include <vector>

namespace koila {

/// What a program has read, and whether all of it is what it was, by identity.
///
/// Made of a list of pairs: (dict, (key, value, key, value, ...)), all of it,
/// in this order; (list, (item, ...)); (set, set), by equality; ((dict, key),
/// value), None for no entry; ((type, name), value), as the type or a base has
/// it; (cell, value), of a closure; (tensor, version), an int.
///
/// The list is the caller's to keep for as long as the guards: they hold no
/// reference, so that Python sees every cycle.
class Guards {
public:
  explicit Guards(const pybind11::list &guards);

  /// True is exact; where False comes of equal values that are other objects,
  /// the caller has to compare them.
  bool hold();

private:
  enum class Kind : uint8_t { Dict, List, Set, Entry, TypeEntry, Cell, Tensor };
  struct Guard {
    Kind kind;
    PyObject *guarded;
    PyObject *expected;
    PyObject *name;
    uint64_t version;
  };

  static bool holds(Guard &guard);

  std::vector<Guard> guards;
};

} // namespace koila

#endif // KOILA_PYTHON_GUARDS_H
