//===- Allocator.cpp - The simulated caching allocator in Python ----------===//

#include "Allocator.h"
#include "koila/Allocators/CachingAllocator.h"
#include <pybind11/stl.h>

namespace py = pybind11;
using namespace koila;

static CachingAllocator makeAllocator(const std::string &settings,
                                      int64_t bytes, bool goesByAddress) {
  auto parsed = CachingAllocatorSettings::parse(settings);
  if (!parsed)
    throw py::value_error(llvm::toString(parsed.takeError()));
  CachingAllocatorOptions options;
  if (goesByAddress)
    options.equalBlocks = CachingAllocatorOptions::EqualBlocks::ByAddress;
  return {*parsed, {bytes, bytes}, std::move(options)};
}

/// Its number; none where memory ran out.
static std::optional<uint64_t> allocate(CachingAllocator &allocator,
                                        int64_t bytes, uint64_t stream) {
  CachingAllocator::Result result = allocator.allocate(bytes, stream);
  if (auto *made = std::get_if<CachingAllocator::Allocation>(&result))
    return made->getNumber();
  return std::nullopt;
}

static void check(llvm::Error error) {
  if (error)
    throw py::value_error(llvm::toString(std::move(error)));
}

static py::dict getStats(const CachingAllocator &allocator) {
  const CachingAllocatorStats &stats = allocator.getStats();
  py::dict figures;
  auto add = [&](const char *name, const AllocatorPoolStat &stat) {
    figures[py::str(name)] = py::make_tuple(stat.all.current, stat.all.peak);
  };
  add("requested_bytes", stats.requestedBytes);
  add("allocated_bytes", stats.allocatedBytes);
  add("active_bytes", stats.activeBytes);
  add("reserved_bytes", stats.reservedBytes);
  return figures;
}

void koila::bindAllocator(py::module_ &m) {
  using Allocation = CachingAllocator::Allocation;
  py::class_<CachingAllocator>(m, "CachingAllocator")
      .def(py::init(&makeAllocator), py::arg("settings"), py::arg("bytes"),
           py::arg("goes_by_address") = false)
      .def("allocate", &allocate, py::arg("bytes"), py::arg("stream") = 0)
      .def(
          "free",
          [](CachingAllocator &allocator, uint64_t number) {
            check(allocator.free(Allocation(number)));
          },
          py::arg("number"))
      .def(
          "record_stream",
          [](CachingAllocator &allocator, uint64_t number, uint64_t stream) {
            check(allocator.recordStream(Allocation(number), stream));
          },
          py::arg("number"), py::arg("stream"))
      .def("synchronize", &CachingAllocator::synchronize, py::arg("stream"))
      .def("empty_cache", &CachingAllocator::emptyCache)
      .def("stats", &getStats);
}
