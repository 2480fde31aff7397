//===- PickleValues.h - Pickles of plain values -----------------*- C++ -*-===//
//
// Numbers, texts, lists and dicts of a pickle, of protocols 2 to 5. Containers
// are numbered, so that those that a pickle has in many places, or inside of
// themselves, are there once.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_ALLOCATORS_SNAPSHOT_PICKLEVALUES_H
#define KOILA_LIB_ALLOCATORS_SNAPSHOT_PICKLEVALUES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <cstdint>
#include <vector>

namespace koila {

struct PickleValue {
  enum class Kind : uint8_t {
    None,
    Boolean,
    /// Of 64 bits with a sign, or without one and larger.
    Integer,
    Unsigned,
    /// Of more bits; its value is not kept.
    Huge,
    Float,
    Text,
    /// A list or a tuple.
    List,
    Dict
  };
  Kind kind = Kind::None;
  /// Of a container.
  uint32_t node = 0;
  int64_t integer = 0;
  double number = 0;
  /// A part of the pickle.
  llvm::StringRef text;
};

class PickleValues {
public:
  /// The pickle has to live as long.
  static llvm::Expected<PickleValues> read(llvm::StringRef pickle);

  const PickleValue &getRoot() const { return root; }
  size_t getNumContainers() const { return nodes.size(); }
  /// Of a list its elements, of a dict its keys and values in turns.
  llvm::ArrayRef<PickleValue> getElements(const PickleValue &container) const {
    return nodes[container.node];
  }
  /// The value of a key; null if there is none.
  const PickleValue *find(const PickleValue &dict, llvm::StringRef key) const;

private:
  friend class PickleReader;
  PickleValue root;
  std::vector<std::vector<PickleValue>> nodes;
};

} // namespace koila

#endif // KOILA_LIB_ALLOCATORS_SNAPSHOT_PICKLEVALUES_H
