//===- CustomOperators.h - Rules of operators in Python ---------*- C++ -*-===//

#ifndef KOILA_PYTHON_CUSTOMOPERATORS_H
#define KOILA_PYTHON_CUSTOMOPERATORS_H

#include <torch/extension.h>

namespace koila {

/// Adds `set_custom_operators(operators, answer)` to the module: a dict of the
/// rules that each operator has, and who is asked what they say.
void bindCustomOperators(pybind11::module_ &m);

} // namespace koila

#endif // KOILA_PYTHON_CUSTOMOPERATORS_H
