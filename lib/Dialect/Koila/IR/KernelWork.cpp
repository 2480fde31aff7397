//===- KernelWork.cpp - Work of kernels ------------------------===//

#include "Rules/WorkRules.h"
#include "koila/Dialect/Koila/IR/MatmulOps.h"

using namespace mlir;
using namespace koila;

static double countElements(ArrayRef<double> shape) {
  double elements = 1;
  for (double extent : shape)
    elements *= extent;
  return elements;
}

KernelWork rules::describeConvolutionWork(GetShape getShape, Value sampled,
                                          Value weight) {
  KernelWork work{KernelFamily::Convolution};
  SmallVector<double> extents = getShape(sampled), filters = getShape(weight);
  if (extents.empty() || filters.size() < 2)
    return work;
  // [filters, channels of a group, ...].
  if (filters[1] == 1)
    work.family = KernelFamily::DepthwiseConvolution;
  work.operations =
      countElements(extents) * countElements(ArrayRef(filters).drop_front());
  return work;
}

KernelWork rules::describeProductWork(GetShape getShape,
                                      ArrayRef<Value> factors,
                                      StringRef equation) {
  SmallVector<SmallVector<double>> shapes;
  SmallVector<int64_t> ranks;
  for (Value factor : factors) {
    shapes.push_back(getShape(factor));
    ranks.push_back(shapes.back().size());
  }
  std::string error;
  auto labels = parseEquation(equation, ranks, error);
  if (!labels)
    return {};
  llvm::SmallDenseMap<int, double> extents;
  for (auto [shape, names] : llvm::zip_equal(shapes, labels->factors))
    for (auto [extent, name] : llvm::zip(shape, names))
      extents[name] = std::max(extents.lookup(name), extent);
  KernelWork work{KernelFamily::Product, 1};
  for (double extent : llvm::make_second_range(extents))
    work.operations *= extent;
  return work;
}

KernelWork rules::describeMatrixWork(GetShape getShape, Value lhs,
                                     Value result) {
  SmallVector<double> rows = getShape(lhs);
  if (rows.empty())
    return {};
  return {KernelFamily::Product, countElements(getShape(result)) * rows.back()};
}

KernelWork rules::describeAttentionWork(GetShape getShape, Value query,
                                        Value key, Value value) {
  SmallVector<double> queries = getShape(query), keys = getShape(key),
                      values = getShape(value);
  if (queries.size() < 2 || keys.size() < 2 || values.size() < 2)
    return {};
  double scores =
      countElements(ArrayRef(queries).drop_back()) * keys[keys.size() - 2];
  return {KernelFamily::Product, scores * (queries.back() + values.back())};
}

KernelWork rules::describePoolWork(GetShape getShape, Value result,
                                   ArrayRef<int64_t> window) {
  SmallVector<double> extents = getShape(result);
  KernelWork work{KernelFamily::Pooling};
  if (extents.empty())
    return work;
  work.operations = countElements(extents);
  for (int64_t extent : window)
    work.operations *= extent;
  return work;
}
