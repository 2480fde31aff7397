//===- Extensions.h - Operators of others ------------------------*- C++
//-*-===//

#ifndef KOILA_PYTHON_EXTENSIONS_H
#define KOILA_PYTHON_EXTENSIONS_H

#include <pybind11/pybind11.h>

namespace koila {

/// `load_extension(path)`: why it cannot be loaded, with the path; empty if it
/// is.
void bindExtensions(pybind11::module_ &module);

} // namespace koila

#endif // KOILA_PYTHON_EXTENSIONS_H
