//===- MatmulModels.cpp - Kernel models of products with matrices ---------===//

#include "../BackwardRules.h"
#include "../Models.h"
#include "../WorkspaceRules.h"
#include "koila/Dialect/Koila/IR/MatmulOps.h"

using namespace mlir;
using namespace koila;
using kernels::allocateNothing;

void kernels::addMatmulModels(KernelLibrary &library) {
  library.add<AddbmmOp, AddmmOp, AddmvOp, AddrOp, BaddbmmOp, BilinearOp, BmmOp,
              CrossOp, DotOp, GerOp, InnerOp, KronOp, LinalgCrossOp,
              LinalgMultiDotOp, MmOp, MvOp, OuterOp, TensordotOp, VdotOp>(
      {rules::describeProductWorkspace, nullptr,
       rules::describeProductBackward});
  library.add<CholeskyInverseOp, CholeskyOp, CholeskySolveOp, DetOp, InverseOp,
              LinalgCholeskyExOp, LinalgCholeskyOp, LinalgDetOp, LinalgEighOp,
              LinalgEigvalshOp, LinalgHouseholderProductOp, LinalgInvExOp,
              LinalgInvOp, LinalgMatrixExpOp, LinalgMatrixPowerOp, LinalgQrOp,
              LinalgSlogdetOp, LinalgSolveExOp, LinalgSolveOp,
              LinalgSolveTriangularOp, LinalgSvdOp, LinalgSvdvalsOp, LogdetOp,
              MatrixExpOp, MatrixPowerOp, PinverseOp, SlogdetOp>(
      {rules::describeMatrixFunctionWorkspace,
       rules::describeMatrixFunctionSaved,
       rules::describeMatrixFunctionBackward});
  library.add<CorrcoefOp, CovOp>({rules::describeCovarianceWorkspace,
                                  rules::describeCovarianceSaved, nullptr});
  library.add<EinsumOp>({rules::describeProductWorkspace,
                         rules::describeEinsumSaved,
                         rules::describeProductBackward});
  library.add<LinalgMatmulOp, MatmulOp>({rules::describeProductWorkspace,
                                         rules::describeProductSaved,
                                         rules::describeProductBackward});
  library.add<LinearOp>({rules::describeLinearWorkspace,
                         rules::describeProductSaved,
                         rules::describeProductBackward});
}
