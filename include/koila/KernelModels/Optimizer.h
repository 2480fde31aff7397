//===- Optimizer.h - What a step of an optimizer allocates ------*- C++ -*-===//
//
// The optimizers of torch.optim, one weight after the other (the default on a
// CPU) and with foreach=true (all at once, the default on CUDA); byte counts
// are of the CPU.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_OPTIMIZER_H
#define KOILA_KERNELMODELS_OPTIMIZER_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>
#include <string>

namespace koila {

/// A weight that an optimizer changes.
struct TrainedWeight {
  llvm::SmallVector<int64_t> dims;
  int64_t bytes;
};

class Optimizer {
public:
  /// `adamw`, or with arguments of the class in torch.optim:
  /// `sgd(lr=0.1,momentum=0.9)`. None, and `problem` says why, for what is
  /// unknown or not supported yet.
  static std::optional<Optimizer> parse(llvm::StringRef text,
                                        std::string &problem);

  llvm::StringRef getName() const { return name; }
  bool usesMomentum() const { return hasMomentum; }
  bool usesNesterov() const { return isNesterov; }
  /// Whether weight_decay is not zero.
  bool addsDecay() const { return hasDecay; }
  /// Whether it runs over all weights at once: what the argument `foreach`
  /// says, or without it what the device has by default.
  bool usesForeach(bool byDefault) const { return foreach.value_or(byDefault); }
  /// Bytes of the state that the optimizer keeps for `weights`.
  int64_t getStateBytes(llvm::ArrayRef<TrainedWeight> weights) const;
  /// Whether step() makes the state; else the optimizer is made with it.
  bool makesState() const { return name != "adagrad"; }
  /// The most bytes of step() with its state there, for float32 weights in the
  /// order of the optimizer.
  int64_t getStepBytes(llvm::ArrayRef<TrainedWeight> weights,
                       int64_t threads) const;
  /// The same of the first step, which makes the state.
  int64_t getFirstStepBytes(llvm::ArrayRef<TrainedWeight> weights,
                            int64_t threads) const;

private:
  /// What SGD holds beside its state; `numbers` for the product with the
  /// momentum.
  int64_t getSgdBytes(llvm::ArrayRef<int64_t> sizes, int64_t numbers) const;
  /// What Adafactor holds beside its state, and with foreach=true.
  int64_t getAdafactorBytes(llvm::ArrayRef<TrainedWeight> weights,
                            int64_t threads) const;
  int64_t getForeachAdafactorBytes(llvm::ArrayRef<TrainedWeight> weights,
                                   int64_t threads) const;

  std::string name;
  bool hasMomentum = false, hasDecay = false, isNesterov = false;
  std::optional<bool> foreach;
};

} // namespace koila

#endif // KOILA_KERNELMODELS_OPTIMIZER_H
