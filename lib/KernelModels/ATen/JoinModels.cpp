//===- JoinModels.cpp - Kernel models of joining and padding --------------===//

#include "../Models.h"
#include "../WorkspaceRules.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"

using namespace mlir;
using namespace koila;
using kernels::allocateNothing;

void kernels::addJoinModels(KernelLibrary &library) {
  library.add<BlockDiagOp, CartesianProdOp, CatOp, ColumnStackOp, ConcatOp,
              ConcatenateOp, DstackOp, HstackOp, RowStackOp, StackOp, VstackOp>(
      {rules::describeJoinWorkspace});
  library.add<ConstantPadNdOp, PadCircularOp, PadOp, ReflectionPad1dOp,
              ReflectionPad2dOp, ReflectionPad3dOp, ReplicationPad1dOp,
              ReplicationPad2dOp, ReplicationPad3dOp>(
      {rules::describePadWorkspace});
  library.add<MeshgridIndexingOp, MeshgridOp>({allocateNothing});
}
