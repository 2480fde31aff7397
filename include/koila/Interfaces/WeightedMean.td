//===- WeightedMean.td - Means of unequal elements ---------*- tablegen -*-===//

#ifndef KOILA_INTERFACES_WEIGHTEDMEAN_TD
#define KOILA_INTERFACES_WEIGHTEDMEAN_TD

include "mlir/IR/OpBase.td"

def Koila_WeightedMeanInterface : OpInterface<"WeightedMeanInterface"> {
  let cppNamespace = "::koila";
  let description = [{
    A loss that may be a mean whose divisor is no number of elements: classes
    have weights, or some are ignored. Means of tiles do not add up to that of
    the batch; sums and divisors do.
  }];
  let methods = [
    InterfaceMethod<[{
      Builds the same value as a quotient of two sums over the samples, the
      second of which needs the targets alone. Null, and nothing is built, if it
      is no such mean.
    }], "::mlir::Value", "decomposeWeightedMean", (ins "::mlir::OpBuilder &":$builder)>
  ];
}

#endif // KOILA_INTERFACES_WEIGHTEDMEAN_TD
