//===- PhiloxOffset.h - How far a draw moves a GPU's generator --*- C++ -*-===//
//
// The generator of a GPU is a seed and an offset. A kernel that draws takes the
// offset as it is, and the host moves it on by as many numbers as one thread
// may take, before the kernel runs: by the number of elements, the type and the
// size of the device, and by no value. Two programs that draw the same leave
// the same offset.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_PHILOXOFFSET_H
#define KOILA_KERNELMODELS_PHILOXOFFSET_H

#include "koila/Interfaces/Rules.h"
#include "koila/KernelModels/DeviceProfile.h"

namespace koila {

/// The threads that a device runs at a time decide how often each draws.
struct PhiloxDevice {
  int64_t multiprocessors, threadsPerMultiprocessor;

  /// None where the profile does not say.
  static std::optional<PhiloxDevice> get(const DeviceProperties &properties);
};

/// Of a kernel in whose loop each thread draws `perCall` numbers at a time.
int64_t getDistributionOffset(int64_t elements, int64_t perCall,
                              const PhiloxDevice &device);
/// Of the kernel of a dropout that draws a mask of bools and multiplies.
int64_t getFusedDropoutOffset(int64_t elements, const PhiloxDevice &device);
/// Of a random order: keys are drawn, and numbers for those that are equal.
int64_t getPermutationOffset(int64_t elements, const PhiloxDevice &device);
/// Of several samples of each of so many rows, drawn with replacement.
int64_t getReplacementOffset(int64_t rows);

/// By how much `op` moves the offset; 0 for what draws nothing, none where it
/// is not known: of attention, whose kernel the device chooses, for one.
std::optional<int64_t> getPhiloxOffset(mlir::Operation *op,
                                       WorkspaceRule::Lookup lookup,
                                       const PhiloxDevice &device);

} // namespace koila

#endif // KOILA_KERNELMODELS_PHILOXOFFSET_H
