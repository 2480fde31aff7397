// The dialect of mylib: its operators, and what koila has to know of them.

#ifndef MYLIB_TD
#define MYLIB_TD

include "koila/Extension/ExtensionOp.td"

def Mylib_Dialect : Dialect {
  let name = "mylib";
  let cppNamespace = "::mylib";
  let dependentDialects = ["::koila::KoilaDialect"];
}

def Mylib_ScaledGeluOp : Koila_ExtensionOp<Mylib_Dialect, "scaled_gelu",
    "mylib::scaled_gelu(Tensor x, float scale) -> Tensor"> {
  let arguments = (ins AnyTensor:$x, F64Attr:$scale);

  // As x, in the order of its dims in memory.
  let shapeRule = [{
    ::koila::TensorInfo x = rule.tensor(getX());
    if (x.elementType && !::llvm::isa<::mlir::FloatType>(x.elementType))
      return rule.emitError() << "takes floating point, not " << x.elementType;
    if (x.hasRank())
      x.strides = ::koila::computeElementwiseStrides({x}, *x.dims);
    rule.setResult(0, x);
    return ::mlir::success();
  }];

  // Elements are computed by themselves: samples stay where they are, any number
  // of them.
  let batchRule = [{
    rule.takeAnyRows();
    rule.setResult(0, rule.fact(getX()));
  }];

  // The kernel makes gelu(x), and then its product with the scale, the result. The
  // scale is a tensor of float64 meanwhile, and one of the type of x.
  let workspaceRule = [{
    if (auto x = rule.tensor(getX()))
      rule.setTransient(x->numBytes() + 8 +
                        ::koila::getElementBytes(x->elementType));
    else
      rule.setInexact("the size of x is not known");
  }];

  // Autograd keeps x.
  let differentiationRule = [{ rule.saveFor(getX(), getX()); }];

  // The product of the gradient and the scale lives while that of x is made.
  let backwardRule = [{
    auto x = rule.tensor(getX());
    if (!x)
      return rule.setInexact("the size of x is not known");
    rule.setNew(0, *x);
    rule.setPeak(2 * x->numBytes());
  }];
}

#endif // MYLIB_TD
