//===- SortModels.cpp - Kernel models of sorting and searching ------------===//

#include "../BackwardRules.h"
#include "../Models.h"
#include "../WorkspaceRules.h"
#include "koila/Dialect/Koila/IR/SortOps.h"

using namespace mlir;
using namespace koila;
using kernels::allocateNothing;

void kernels::addSortModels(KernelLibrary &library) {
  library.add<ArgsortOp, ArgsortStableOp, BucketizeScalarOp, BucketizeTensorOp,
              CummaxOp, CumminOp, CumprodOp, CumsumOp, DiffOp, HistcOp,
              KthvalueOp, LogcumsumexpOp, MsortOp, SearchsortedScalarOp,
              SearchsortedTensorOp, SortOp, SortStableOp, TopkOp, Unique2Op,
              UniqueConsecutiveOp, UniqueDimOp>(
      {rules::describeSortWorkspace, nullptr, nullptr});
}
