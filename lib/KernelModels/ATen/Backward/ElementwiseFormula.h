//===- ElementwiseFormula.h - What formulas of gradients read ---*- C++ -*-===//
//
// Private to lib/KernelModels. The formulas of elementwise operators lie in
// several files, which add theirs to one table by the names of the schemas.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_ATEN_BACKWARD_ELEMENTWISEFORMULA_H
#define KOILA_KERNELMODELS_ATEN_BACKWARD_ELEMENTWISEFORMULA_H

#include "BackwardReplay.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "llvm/ADT/StringMap.h"

namespace koila::kernels {

struct Formula {
  BackwardRule &rule;
  BackwardReplay &steps;
  const ConcreteTensor &gradient;

  mlir::Operation *getOp() const { return rule.getOp(); }
  /// Whether there is a second tensor, not a number or a constant that is taken
  /// as one.
  bool hasOther() const {
    return getOp()->getNumOperands() > 1 &&
           mlir::isa<mlir::TensorType>(getOp()->getOperand(1).getType()) &&
           !getConstant();
  }
  /// A number that the file has as a tensor; in place PyTorch takes it for one
  /// (measured).
  ParamGetOp getConstant() const {
    if (getOp()->getNumOperands() < 2 ||
        mlir::cast<TorchOperatorInterface>(getOp()).isTied())
      return {};
    auto read = getOp()->getOperand(1).getDefiningOp<ParamGetOp>();
    return read && read->hasAttr("wrapped") ? read : ParamGetOp();
  }
  ConcreteTensor self() const { return steps.read(0); }
  ConcreteTensor other() const { return steps.read(1); }
  /// What the argument `name`, a number, becomes.
  OpReplay::Number getNumber(llvm::StringRef name) const;
  /// Whether it is the number one.
  bool isOne(llvm::StringRef name) const;
};

using RunFormula = void (*)(const Formula &);

/// grad * factor, or divided by it: the factor is freed.
void multiplyBy(const Formula &of, const MadeTensor &factor,
                unsigned operand = 0);
/// What is left of the gradient of a real operand, a complex number: a view of
/// its real parts.
void giveReal(const Formula &of, unsigned operand, const ConcreteTensor &made);
/// grad * factor.conj(), of which a kernel reads a copy that is conjugated.
void giveConjugated(const Formula &of, unsigned operand,
                    const ConcreteTensor &factor);

/// `tensor` times a complex number of C++, which has two float64.
MadeTensor multiplyByComplex(const Formula &of, const ConcreteTensor &tensor);

/// Operators on complex numbers.
void addComplexFormulas(llvm::StringMap<RunFormula> &table);
/// Functions that are expressions over several kernels.
void addSpecialFormulas(llvm::StringMap<RunFormula> &table);

} // namespace koila::kernels

#endif // KOILA_KERNELMODELS_ATEN_BACKWARD_ELEMENTWISEFORMULA_H
