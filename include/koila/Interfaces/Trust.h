//===- Trust.h - How far a figure can be trusted ----------------*- C++ -*-===//

#ifndef KOILA_INTERFACES_TRUST_H
#define KOILA_INTERFACES_TRUST_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <algorithm>
#include <cstdint>
#include <string>

namespace koila {

/// Ordered: what rests on two figures is trusted as the lesser of them.
enum class Trust : uint8_t {
  /// Not a byte off.
  Exact,
  /// Never less than what is allocated.
  UpperBound,
  /// A guess.
  Unknown
};

inline Trust join(Trust first, Trust second) { return std::max(first, second); }

/// Why a figure is not exact.
struct Doubt {
  Trust trust = Trust::Unknown;
  /// A clause for reports, for example "a product of complex numbers".
  std::string reason;
  /// Where the figure is from, if it was not derived: a measurement, a page.
  std::string source = {};
};

/// The doubts about one figure, in the order in which they came up. Nothing
/// takes one back.
class Doubts {
public:
  void add(Doubt doubt) {
    if (doubt.trust != Trust::Exact)
      list.push_back(std::move(doubt));
  }

  Trust getTrust() const {
    Trust trust = Trust::Exact;
    for (const Doubt &doubt : list)
      trust = join(trust, doubt.trust);
    return trust;
  }
  llvm::ArrayRef<Doubt> getAll() const { return list; }

private:
  llvm::SmallVector<Doubt, 1> list;
};

} // namespace koila

#endif // KOILA_INTERFACES_TRUST_H
