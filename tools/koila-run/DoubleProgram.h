//===- DoubleProgram.h - A program in float64 -------------------*- C++ -*-===//

#ifndef KOILA_TOOLS_KOILARUN_DOUBLEPROGRAM_H
#define KOILA_TOOLS_KOILARUN_DOUBLEPROGRAM_H

#include <string>
#include <torch/csrc/jit/api/module.h>

namespace koila::run {

/// A copy of `module` that computes in float64: parameters, buffers and
/// constant tensors, and, in `method`, what the program says of floating
/// dtypes.
///
/// The last part is for tiled files. Their guard compares `x.dtype` with a
/// constant and runs the untiled program if it is another, so that their tiles
/// would not be met by a float64 input; and their output buffers are made with
/// the dtype of the given program.
torch::jit::Module makeDoubleProgram(const torch::jit::Module &module,
                                     const std::string &method);

} // namespace koila::run

#endif // KOILA_TOOLS_KOILARUN_DOUBLEPROGRAM_H
