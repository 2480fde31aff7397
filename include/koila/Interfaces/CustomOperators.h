//===- CustomOperators.h - Operators that a program describes ---*- C++ -*-===//
//
// The rules that a program wrote for operators of its own: `koila.custom_op`
// asks them. Whoever runs the passes adds a source to the dialect, as
// koila.register of the Python package does.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_INTERFACES_CUSTOMOPERATORS_H
#define KOILA_INTERFACES_CUSTOMOPERATORS_H

#include "koila/Interfaces/RequestSource.h"
#include "mlir/IR/DialectInterface.h"
#include "llvm/ADT/SmallVector.h"

namespace koila {

/// Which rules an operator has.
struct CustomOperator {
  bool shape = false, batch = false, forward = false, saved = false,
       backward = false;
  /// Per result, the argument that it is a view of; -1 for a new tensor.
  llvm::SmallVector<int64_t, 1> storage;
};

/// The rules themselves. A request is a JSON object:
///
/// * `callee`, the name of the operator, and `rule`, which rule is asked;
/// * `arguments`, one per argument of the operator: `{"tensor": {"dims",
///   "dtype", "strides"}}` with PyTorch's code of the element type and strides
///   in elements, or a literal (encodeLiteral);
/// * `results`, tensors as among the arguments, and of `backward` also
///   `gradients`, a tensor or null per result;
/// * `threads`, and `wants`, per argument whether a gradient flows to it.
///
/// For `batch` an argument is `{"batch": dim, "rank": n}`, where `batch` is
/// null if it does not depend on the batch. Answers, each an object:
///
/// * `shape`: `results`, as MetaKernelShapeSource answers;
/// * `batch`: `results`, per result `{"dim": d}`, `{"free": true}` or
/// `{"mixed":
///   why}`;
/// * `forward`: `transient`, the bytes beyond the results at the worst moment;
/// * `saved`: `arguments` and `results`, the indices of what autograd keeps,
/// and
///   `bytes` of what it keeps besides;
/// * `backward`: `peak`, the bytes at the worst moment, new gradients included,
///   and `gradients`, per argument null, `{"same": r}` (the tensor that arrives
///   for result r), `{"view": r, "tensor": t}` or `{"tensor": t}`;
/// * any: `error`, why the rule gave no answer.
class CustomOperatorSource
    : public mlir::DialectInterface::Base<CustomOperatorSource>,
      public RequestSource {
public:
  explicit CustomOperatorSource(mlir::Dialect *dialect) : Base(dialect) {}

  /// Null if nothing is registered for an operator of that name.
  virtual const CustomOperator *lookup(llvm::StringRef callee) const = 0;
};

} // namespace koila

#endif // KOILA_INTERFACES_CUSTOMOPERATORS_H
