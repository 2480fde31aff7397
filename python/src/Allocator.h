//===- Allocator.h - The simulated caching allocator in Python --*- C++ -*-===//

#ifndef KOILA_PYTHON_ALLOCATOR_H
#define KOILA_PYTHON_ALLOCATOR_H

#include <pybind11/pybind11.h>

namespace koila {

/// The class `CachingAllocator` (include/koila/Allocators/CachingAllocator.h).
void bindAllocator(pybind11::module_ &m);

} // namespace koila

#endif // KOILA_PYTHON_ALLOCATOR_H
