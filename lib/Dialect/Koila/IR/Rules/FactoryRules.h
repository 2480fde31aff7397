//===- FactoryRules.h - Rules of new and random tensors ---------*- C++ -*-===//

#ifndef KOILA_LIB_DIALECT_KOILA_IR_RULES_FACTORYRULES_H
#define KOILA_LIB_DIALECT_KOILA_IR_RULES_FACTORYRULES_H

#include "OperatorRules.h"
#include "koila/Dialect/Koila/IR/FactoryOps.h"

namespace koila::rules {

// Factories. They read the arguments `size`, `stride`, `physical_layout`,
// `fill_value`, `dtype` and `memory_format` by name.

/// The element type of a tensor made of a number: float32 for a float.
mlir::Type getDefaultType(mlir::Type number);
/// `self` gives the element type; null: the number it is filled with does.
llvm::LogicalResult inferSized(ShapeRule &rule, mlir::Value self);
void inferSizedBatch(BatchRule &rule, mlir::Value self);
llvm::LogicalResult inferLike(ShapeRule &rule, mlir::Value self);
void inferLikeBatch(BatchRule &rule, mlir::Value self);
/// For values that follow the number of samples.
void mixNumberOfSamples(BatchRule &rule);
/// One dim, whose extent is the argument of that name.
llvm::LogicalResult inferSequence(ShapeRule &rule, llvm::StringRef extent,
                                  mlir::Type otherwise = {});
llvm::LogicalResult inferArange(ShapeRule &rule);
void inferStepsBatch(BatchRule &rule);
llvm::LogicalResult inferEye(ShapeRule &rule);
llvm::LogicalResult inferTriangleIndices(ShapeRule &rule, bool lower);
llvm::LogicalResult inferScalar(ShapeRule &rule, mlir::Type otherwise);
llvm::LogicalResult inferListTensor(ShapeRule &rule);

// Random tensors.

/// Refuses integers, of which there are no continuous draws.
llvm::LogicalResult checkReal(const ShapeRule &rule, mlir::Type type);
/// Refuses a range of integers that is empty or not of the type; a missing
/// `low` is zero.
llvm::LogicalResult checkDrawRange(const ShapeRule &rule, llvm::StringRef low,
                                   llvm::StringRef high, mlir::Type type);
llvm::LogicalResult checkDeviation(const ShapeRule &rule,
                                   const llvm::APFloat &deviation);
/// Of the tensors that mean and deviation are, the mean first.
llvm::LogicalResult inferNormal(ShapeRule &rule,
                                llvm::ArrayRef<mlir::Value> operands);
llvm::LogicalResult inferMultinomial(ShapeRule &rule, mlir::Value self,
                                     bool replacement);
void inferMultinomialBatch(BatchRule &rule, mlir::Value self);

// Draws into new storage, as TensorFactories.cpp composes them.

/// The operator itself, in place.
mlir::Value drawSame(mlir::OpBuilder &builder, mlir::Operation *op,
                     mlir::Value storage);
/// From 0 to 1.
mlir::Value drawUniform(mlir::OpBuilder &builder, mlir::Operation *op,
                        mlir::Value storage);
/// Of mean 0 and deviation 1.
mlir::Value drawNormal(mlir::OpBuilder &builder, mlir::Operation *op,
                       mlir::Value storage);
/// From the attribute `low`, or 0, to `high`.
mlir::Value drawIntegers(mlir::OpBuilder &builder, mlir::Operation *op,
                         mlir::Value storage);

} // namespace koila::rules

#endif // KOILA_LIB_DIALECT_KOILA_IR_RULES_FACTORYRULES_H
