//===- IndexModels.cpp - Kernel models of indexing, joining and padding ---===//

#include "../BackwardRules.h"
#include "../Models.h"
#include "../WorkspaceRules.h"
#include "koila/Dialect/Koila/IR/IndexOps.h"

using namespace mlir;
using namespace koila;
using kernels::allocateNothing;

/// The indices as int64.
static void savePlaces(SavedRule &rule) {
  auto result = rule.tensor(rule.getOp()->getResult(0));
  if (saveDifferentiated(rule).savesInner && result)
    rule.keep(result->numElements() * sizeof(int64_t));
}

void kernels::addIndexModels(KernelLibrary &library) {
  library.add<ArgwhereOp, BincountOp, DiagOp, EmbeddingBagOp,
              EmbeddingBagPaddingOp, EmbeddingOp, GatherOp, IndexAddOp,
              IndexCopyOp, IndexFillScalarOp, IndexFillTensorOp,
              IndexHackedTwinOp, IndexPutHackedTwinOp, IndexPutOp,
              IndexSelectOp, IndexTensorOp, MaskedScatterOp, MaskedSelectOp,
              NonzeroNumpyOp, NonzeroOp, OneHotOp, RepeatInterleaveTensorOp,
              ScatterAddOp, ScatterReduceOp, ScatterReduceTwoOp, ScatterSrcOp,
              ScatterValueOp, ScatterValueReduceOp, TakeOp, WhereConditionOp>(
      {rules::describeIndexWorkspace, nullptr, rules::describeIndexBackward});
  library.add<BlockDiagOp, CartesianProdOp, CatOp, ColumnStackOp, ConcatOp,
              ConcatenateOp, DstackOp, HstackOp, RowStackOp, StackOp, VstackOp>(
      {rules::describeJoinWorkspace, nullptr, rules::describeJoinBackward});
  library
      .add<ChannelShuffleOp, Col2imOp, DiagEmbedOp, FlipOp, FliplrOp, FlipudOp,
           Im2colOp, NativeChannelShuffleOp, PixelShuffleOp, PixelUnshuffleOp,
           RepeatInterleaveIntOp, RepeatInterleaveSelfTensorOp, RepeatOp,
           RollOp, Rot90Op, TileOp, TrilOp, TriuOp>(
          {rules::describeRearrangeWorkspace, nullptr,
           rules::describeIndexBackward});
  library.add<ConstantPadNdOp, PadCircularOp, PadOp, ReflectionPad1dOp,
              ReflectionPad2dOp, ReflectionPad3dOp, ReplicationPad1dOp,
              ReplicationPad2dOp, ReplicationPad3dOp>(
      {rules::describePadWorkspace, nullptr, rules::describeIndexBackward});
  library.add<MeshgridIndexingOp, MeshgridOp>(
      {allocateNothing, nullptr, rules::describeIndexBackward});
  library.add<TakeAlongDimOp>({rules::describeIndexWorkspace, savePlaces,
                               rules::describeIndexBackward});
}
