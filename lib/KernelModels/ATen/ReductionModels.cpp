//===- ReductionModels.cpp - Kernel models of reductions ------------------===//

#include "../BackwardRules.h"
#include "../Models.h"
#include "../WorkspaceRules.h"
#include "koila/Dialect/Koila/IR/ReductionOps.h"

using namespace mlir;
using namespace koila;
using kernels::allocateNothing;

void kernels::addReductionModels(KernelLibrary &library) {
  library.add<AllDimOp, AllDimsOp, AllOp, AmaxOp, AminOp, AminmaxOp, AnyDimOp,
              AnyDimsOp, AnyOp, ArgmaxOp, ArgminOp, CountNonzeroDimOp,
              CountNonzeroOp, LinalgVectorNormOp, LogsumexpOp, MaxDimOp, MaxOp,
              MeanDimOp, MeanOp, MedianDimOp, MedianOp, MinDimOp, MinOp, ModeOp,
              NanmeanOp, NanmedianDimOp, NanmedianOp, NanquantileOp,
              NanquantileScalarOp, NansumOp, NormDimDtypeOp, NormDimOp,
              NormScalarOp, ProdDimOp, ProdOp, QuantileOp, QuantileScalarOp,
              StdCorrectionOp, StdDimOp, StdMeanCorrectionOp, StdMeanDimOp,
              StdMeanOp, StdOp, SumDimOp, SumOp, TraceOp, VarCorrectionOp,
              VarDimOp, VarMeanCorrectionOp, VarMeanDimOp, VarMeanOp, VarOp>(
      {rules::describeReductionWorkspace, nullptr,
       rules::describeReductionBackward});
}
