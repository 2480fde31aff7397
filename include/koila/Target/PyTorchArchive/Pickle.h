//===- Pickle.h - Pickles read without building anything --------*- C++ -*-===//

#ifndef KOILA_TARGET_PYTORCHARCHIVE_PICKLE_H
#define KOILA_TARGET_PYTORCHARCHIVE_PICKLE_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace koila::torchscript {

/// What the object graph of a pickle refers to. Texts point into the pickle.
struct PickleSummary {
  /// `module.Name`
  std::vector<std::string> globals;
  /// Bytes that tensors are made of.
  struct Storage {
    /// For example `FloatStorage`.
    llvm::StringRef type;
    /// The record is named so.
    llvm::StringRef key;
    llvm::StringRef device;
    int64_t elements = 0;
  };
  std::vector<Storage> storages;
  /// The longest chain of containers in containers.
  unsigned nesting = 0;
};

/// Runs the instructions of `pickle` as LibTorch's unpickler would, with
/// nothing but the shape of the graph. None if an instruction is unknown,
/// takes what is not there, or closes a circle; `error` says which.
std::optional<PickleSummary> readPickle(llvm::StringRef pickle,
                                        std::string &error);

/// Bytes per element of a storage type; none if it is unknown.
std::optional<unsigned> getElementSize(llvm::StringRef storageType);

} // namespace koila::torchscript

#endif // KOILA_TARGET_PYTORCHARCHIVE_PICKLE_H
