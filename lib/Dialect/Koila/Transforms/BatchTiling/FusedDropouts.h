//===- FusedDropouts.h - Dropouts that are one kernel on a GPU --*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_TRANSFORMS_BATCHTILING_FUSEDDROPOUTS_H
#define KOILA_LIB_DIALECT_KOILA_TRANSFORMS_BATCHTILING_FUSEDDROPOUTS_H

#include "koila/Analysis/Storage.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace koila {

/// Whether `op` is a dropout that is one kernel on a GPU: in training, and not
/// in place. All other operators draw there with the kernels by which they are
/// called, as on the CPU.
bool isFusedDropout(mlir::Operation *op);

/// Whether all that `op` draws on a GPU is by its operands as they are, if they
/// lie as in the untiled program. Attention and recurrent layers draw inside of
/// kernels that PyTorch chooses by more than that.
bool drawsByOperands(mlir::Operation *op);

/// Which element gets which number depends on the input of the kernel, though
/// on no value of it: on its type, on whether it is dense and in which order,
/// and on whether it begins at a multiple of sixteen bytes, since threads then
/// read several neighbours at once.
class FusedDropouts {
public:
  /// `dims`, of `function`, has to outlive this.
  FusedDropouts(mlir::FunctionOpInterface function, const DimAnalysis &dims)
      : function(function), dims(dims), storage(function, dims) {}

  enum class Source {
    /// What draws alike is not known.
    Unknown,
    /// An argument of the function: it is there as it is.
    Argument,
    /// Without the batch: the dropout runs whole, as in the untiled program.
    Whole,
    /// A new tensor of that shape and order: the input begins where the storage
    /// of an operation of the program begins.
    New
  };
  /// What the kernel can be given in place of `input`, a value of the function
  /// as `dims` knows it.
  Source findSource(mlir::Value input) const;
  /// The argument that `input` is; null if it is none.
  mlir::BlockArgument getArgument(mlir::Value input) const;

private:
  mlir::FunctionOpInterface function;
  const DimAnalysis &dims;
  StorageAnalysis storage;
};

} // namespace koila

#endif // KOILA_LIB_DIALECT_KOILA_TRANSFORMS_BATCHTILING_FUSEDDROPOUTS_H
