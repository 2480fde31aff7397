//===- Guards.cpp - whether what a program has read is unchanged ----------===//
//
// A call of a compiled module asks this of all its parts: a network of 150
// parts has 2,000 dicts. Pointers are compared, and nothing is allocated.
//
//===----------------------------------------------------------------------===//

#include "Guards.h"
#include <torch/csrc/autograd/python_variable.h>

namespace py = pybind11;
using namespace koila;

/// A number that is another after every change of a dict (PEP 509); 0 where
/// this version of Python has none, and contents are compared.
static uint64_t versionOf(PyObject *dict) {
#if PY_VERSION_HEX < 0x030C0000
  return reinterpret_cast<PyDictObject *>(dict)->ma_version_tag;
#else
  (void)dict;
  return 0;
#endif
}

/// All of a dict, which keeps its order.
static bool isUnchangedDict(PyObject *dict, PyObject *expected) {
  if (PyDict_GET_SIZE(dict) * 2 != PyTuple_GET_SIZE(expected))
    return false;
  Py_ssize_t position = 0, index = 0;
  PyObject *key = nullptr, *value = nullptr;
  while (PyDict_Next(dict, &position, &key, &value)) {
    if (PyTuple_GET_ITEM(expected, index) != key ||
        PyTuple_GET_ITEM(expected, index + 1) != value)
      return false;
    index += 2;
  }
  return true;
}

static bool isUnchangedList(PyObject *list, PyObject *expected) {
  Py_ssize_t size = PyList_GET_SIZE(list);
  if (size != PyTuple_GET_SIZE(expected))
    return false;
  for (Py_ssize_t index = 0; index < size; ++index)
    if (PyList_GET_ITEM(list, index) != PyTuple_GET_ITEM(expected, index))
      return false;
  return true;
}

static bool isUnchangedEntry(PyObject *dict, PyObject *key,
                             PyObject *expected) {
  PyObject *found = PyDict_GetItemWithError(dict, key);
  if (!found && PyErr_Occurred())
    throw py::error_already_set();
  return found == expected || (!found && expected == Py_None);
}

static bool isEqual(PyObject *set, PyObject *expected) {
  int isEqual = PyObject_RichCompareBool(set, expected, Py_EQ);
  if (isEqual < 0)
    throw py::error_already_set();
  return isEqual;
}

Guards::Guards(const py::list &list) {
  guards.reserve(list.size());
  for (py::handle item : list) {
    PyObject *guarded = PyTuple_GET_ITEM(item.ptr(), 0);
    PyObject *expected = PyTuple_GET_ITEM(item.ptr(), 1);
    Guard guard{Kind::Tensor, guarded, expected, nullptr, 0};
    if (PyDict_Check(guarded)) {
      guard.kind = Kind::Dict;
      // Of what is no longer so the contents are compared each time.
      if (isUnchangedDict(guarded, expected))
        guard.version = versionOf(guarded);
    } else if (PyList_Check(guarded)) {
      guard.kind = Kind::List;
    } else if (PyAnySet_Check(guarded)) {
      guard.kind = Kind::Set;
    } else if (PyCell_Check(guarded)) {
      guard.kind = Kind::Cell;
    } else if (PyTuple_Check(guarded)) {
      guard.guarded = PyTuple_GET_ITEM(guarded, 0);
      guard.name = PyTuple_GET_ITEM(guarded, 1);
      guard.kind = PyType_Check(guard.guarded) ? Kind::TypeEntry : Kind::Entry;
    } else if (!THPVariable_Check(guarded)) {
      throw py::type_error("what is guarded is of no kind that is known");
    }
    guards.push_back(guard);
  }
}

bool Guards::holds(Guard &guard) {
  switch (guard.kind) {
  case Kind::Dict: {
    uint64_t version = versionOf(guard.guarded);
    if (version && version == guard.version)
      return true;
    if (!isUnchangedDict(guard.guarded, guard.expected))
      return false;
    guard.version = version;
    return true;
  }
  case Kind::List:
    return isUnchangedList(guard.guarded, guard.expected);
  case Kind::Set:
    return isEqual(guard.guarded, guard.expected);
  case Kind::Entry:
    return isUnchangedEntry(guard.guarded, guard.name, guard.expected);
  case Kind::TypeEntry:
    return _PyType_Lookup(reinterpret_cast<PyTypeObject *>(guard.guarded),
                          guard.name) == guard.expected;
  case Kind::Cell:
    return PyCell_GET(guard.guarded) == guard.expected;
  case Kind::Tensor:
    return THPVariable_Unpack(guard.guarded)._version() ==
           PyLong_AsLong(guard.expected);
  }
  return false;
}

bool Guards::hold() {
  for (Guard &guard : guards)
    if (!holds(guard))
      return false;
  return true;
}
