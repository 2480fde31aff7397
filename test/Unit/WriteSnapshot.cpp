//===- WriteSnapshot.cpp - A snapshot of a small program ------------------===//
//
//   KoilaWriteSnapshot SETTINGS > snapshot.pickle
//
// For test/oracle/snapshot_viewer.py, which reads it with PyTorch.
//
//===----------------------------------------------------------------------===//

#include "koila/Allocators/Snapshot.h"
#include "llvm/Support/raw_ostream.h"

using namespace koila;
using Allocation = CachingAllocator::Allocation;

int main(int argc, char **argv) {
  if (argc != 2)
    return 1;
  constexpr int64_t kDevice = int64_t(80) << 30;
  Snapshot snapshot;
  snapshot.traces.emplace_back();
  Snapshot::Stack stack = Snapshot::kNoStack;
  CachingAllocatorOptions options;
  options.observer = [&](const AllocatorEvent &event) {
    auto time = static_cast<int64_t>(snapshot.traces[0].size());
    snapshot.traces[0].push_back({event, time, Snapshot::Pool(), stack});
  };
  CachingAllocator allocator(
      llvm::cantFail(CachingAllocatorSettings::parse(argv[1])),
      {kDevice, kDevice}, options);
  auto allocate = [&](int64_t bytes, CachingAllocator::Stream stream,
                      const char *name) {
    stack =
        snapshot.addStack({{"model.py", bytes, name}, {"main.py", 1, "main"}});
    return std::get<Allocation>(allocator.allocate(bytes, stream));
  };
  Allocation weight = allocate(40000000, 0, "weight");
  Allocation first = allocate(3000000, 0, "first \xe2\x86\x92");
  Allocation second = allocate(1000, 16, "second");
  llvm::cantFail(allocator.recordStream(first, 16));
  llvm::cantFail(allocator.free(first));
  llvm::cantFail(allocator.free(weight));
  allocator.emptyCache();
  allocate(5000000, 0, "third");
  llvm::cantFail(allocator.recordStream(second, 0));
  llvm::cantFail(allocator.free(second));
  allocator.allocate(kDevice);
  addAllocator(snapshot, allocator);
  writeSnapshot(llvm::outs(), snapshot);
  return 0;
}
