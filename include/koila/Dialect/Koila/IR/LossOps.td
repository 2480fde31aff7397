//===- LossOps.td - Losses and distances -------------------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_LOSSOPS_TD
#define KOILA_DIALECT_KOILA_IR_LOSSOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"
include "koila/Interfaces/WeightedMean.td"

/// `arguments_` without `reduction`, which is the last unless `more` follow.
class Koila_LossOp<string mnemonic, string schema, dag args, string shape,
                   string batch, list<Trait> traits = []>
    : Koila_RuledOp<mnemonic, schema, "", traits> {
  let description = [{
    With `reduction` 0 one loss for each element, row or sample: the batch
    stays. With 1 their mean and with 2 their sum: samples are mixed. New storage.
  }];
  let arguments = args;
  let shapeRule = "return ::koila::rules::" # shape # ";";
  let batchRule = "::koila::rules::" # batch # ";";
  let differentiationRule = "::koila::rules::describeLossDerivative(rule);";
}

class Koila_ElementwiseLossOp<string mnemonic, string schema, dag args,
                              string loss, list<Trait> traits = []>
    : Koila_LossOp<mnemonic, schema, args,
                   "inferElementwiseLoss(rule, ::koila::rules::Loss::" # loss # ")",
                   "inferElementwiseLossBatch(rule)", traits>;

defvar lossOperands = (ins AnyTensor:$self, AnyTensor:$target);
defvar reductionArg = (ins I64Attr:$reduction);

def Koila_MseLossOp : Koila_ElementwiseLossOp<"mse_loss",
  "aten::mse_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
  !con(lossOperands, reductionArg), "Squared">;
def Koila_L1LossOp : Koila_ElementwiseLossOp<"l1_loss",
  "aten::l1_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
  !con(lossOperands, reductionArg), "Absolute">;
def Koila_SmoothL1LossOp : Koila_ElementwiseLossOp<"smooth_l1_loss",
  "aten::smooth_l1_loss(Tensor self, Tensor target, int reduction=1, float beta=1.) -> Tensor",
  !con(lossOperands, reductionArg, (ins F64Attr:$beta)), "Squared">;
def Koila_HuberLossOp : Koila_ElementwiseLossOp<"huber_loss",
  "aten::huber_loss(Tensor self, Tensor target, int reduction=1, float delta=1.) -> Tensor",
  !con(lossOperands, reductionArg, (ins F64Attr:$delta)), "Huber">;
def Koila_BinaryCrossEntropyOp : Koila_ElementwiseLossOp<"binary_cross_entropy",
  "aten::binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, int reduction=1) -> Tensor",
  !con(lossOperands, (ins Koila_OptionalTensor:$weight), reductionArg), "Binary">;
def Koila_BinaryCrossEntropyWithLogitsOp : Koila_ElementwiseLossOp<"binary_cross_entropy_with_logits",
  "aten::binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, int reduction=1) -> Tensor",
  !con(lossOperands, (ins Koila_OptionalTensor:$weight, Koila_OptionalTensor:$pos_weight), reductionArg),
  "BinaryWithLogits", [AttrSizedOperandSegments]>;
def Koila_KlDivOp : Koila_ElementwiseLossOp<"kl_div",
  "aten::kl_div(Tensor self, Tensor target, int reduction=1, *, bool log_target=False) -> Tensor",
  !con(lossOperands, reductionArg, (ins BoolAttr:$log_target)), "Divergence">;
def Koila_SoftMarginLossOp : Koila_ElementwiseLossOp<"soft_margin_loss",
  "aten::soft_margin_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
  !con(lossOperands, reductionArg), "SoftMargin">;
def Koila_HingeEmbeddingLossOp : Koila_ElementwiseLossOp<"hinge_embedding_loss",
  "aten::hinge_embedding_loss(Tensor self, Tensor target, float margin=1., int reduction=1) -> Tensor",
  !con(lossOperands, (ins F64Attr:$margin), reductionArg), "Hinge">;
def Koila_MarginRankingLossOp : Koila_ElementwiseLossOp<"margin_ranking_loss",
  "aten::margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0., int reduction=1) -> Tensor",
  !con((ins AnyTensor:$input1, AnyTensor:$input2, AnyTensor:$target, F64Attr:$margin), reductionArg),
  "MarginRanking">;
def Koila_PoissonNllLossOp : Koila_ElementwiseLossOp<"poisson_nll_loss",
  "aten::poisson_nll_loss(Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction) -> Tensor",
  !con((ins AnyTensor:$input, AnyTensor:$target, BoolAttr:$log_input, BoolAttr:$full, F64Attr:$eps), reductionArg),
  "Poisson">;

/// Targets are classes, or with cross_entropy_loss also their probabilities.
class Koila_ClassLossOp<string mnemonic, string schema, string loss, dag extra = (ins)>
    : Koila_LossOp<mnemonic, schema,
        !con(lossOperands, (ins Koila_OptionalTensor:$weight), reductionArg,
             (ins I64Attr:$ignore_index), extra, (ins Variadic<AnyType>:$dynamic)),
        "inferClassLoss(rule, ::koila::rules::ClassLoss::" # loss # ", getWeight())",
        "inferClassLossBatch(rule, getWeight())",
        [AttrSizedOperandSegments,
         Koila_WeightedMeanInterface]> {
  let extraClassDeclaration = baseDeclaration # [{
    ::mlir::Value decomposeWeightedMean(::mlir::OpBuilder &builder);
  }];
  let moreDefinitions = [{
    ::mlir::Value $cppClass::decomposeWeightedMean(
        ::mlir::OpBuilder &builder) {
      return ::koila::rules::expandClassLossMean(*this, getWeight(), builder);
    }
  }];
}
class Koila_NllLossFamilyOp<string mnemonic, string loss>
    : Koila_ClassLossOp<mnemonic, "aten::" # mnemonic #
        "(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt ignore_index=-100) -> Tensor",
        loss>;
def Koila_NllLossOp : Koila_NllLossFamilyOp<"nll_loss", "Nll">;
def Koila_NllLoss2dOp : Koila_NllLossFamilyOp<"nll_loss2d", "Nll2d">;
def Koila_NllLossNdOp : Koila_NllLossFamilyOp<"nll_loss_nd", "NllNd">;
def Koila_CrossEntropyLossOp : Koila_ClassLossOp<"cross_entropy_loss",
  "aten::cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt ignore_index=-100, float label_smoothing=0.) -> Tensor",
  "CrossEntropy", (ins F64Attr:$label_smoothing)>;

def Koila_MultiMarginLossOp : Koila_LossOp<"multi_margin_loss",
  "aten::multi_margin_loss(Tensor self, Tensor target, Scalar p=1, Scalar margin=1, Tensor? weight=None, int reduction=1) -> Tensor",
  !con(lossOperands, (ins Koila_ScalarAttr:$p, Koila_ScalarAttr:$margin, Koila_OptionalTensor:$weight), reductionArg),
  "inferMultiMarginLoss(rule, getWeight())", "inferRowLossBatch(rule, getWeight())">;
def Koila_MultilabelMarginLossOp : Koila_LossOp<"multilabel_margin_loss",
  "aten::multilabel_margin_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
  !con(lossOperands, reductionArg),
  "inferMultilabelMarginLoss(rule)", "inferRowLossBatch(rule, {})">;
def Koila_CosineEmbeddingLossOp : Koila_LossOp<"cosine_embedding_loss",
  "aten::cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0., int reduction=1) -> Tensor",
  !con((ins AnyTensor:$input1, AnyTensor:$input2, AnyTensor:$target, F64Attr:$margin), reductionArg),
  "inferCosineEmbeddingLoss(rule)", "inferRowLossBatch(rule, {})">;
def Koila_TripletMarginLossOp : Koila_LossOp<"triplet_margin_loss",
  "aten::triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1., float p=2., float eps=1e-06, bool swap=False, int reduction=1) -> Tensor",
  !con((ins AnyTensor:$anchor, AnyTensor:$positive, AnyTensor:$negative,
            F64Attr:$margin, F64Attr:$p, F64Attr:$eps, BoolAttr:$swap), reductionArg),
  "inferTripletLoss(rule)", "inferTripletLossBatch(rule)">;
def Koila_CtcLossOp : Koila_LossOp<"ctc_loss_Tensor",
  "aten::ctc_loss.Tensor(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank=0, int reduction=1, bool zero_infinity=False) -> Tensor",
  !con((ins AnyTensor:$log_probs, AnyTensor:$targets, AnyTensor:$input_lengths,
            AnyTensor:$target_lengths, I64Attr:$blank), reductionArg,
       (ins BoolAttr:$zero_infinity)),
  "inferCtcLoss(rule, getBlank())", "inferCtcLossBatch(rule)">;

//===----------------------------------------------------------------------===//
// The backward pass
//===----------------------------------------------------------------------===//

def Koila_GradientResource : Resource<"::koila::GradientResource">;

def Koila_BackwardOp : Koila_TorchOp<"backward",
    "aten::backward(Tensor self, Tensor? gradient=None, bool? retain_graph=None, bool create_graph=False) -> ()",
    "", [Koila_AllocationInterface], "true",
    [MemoryEffects<[MemRead, MemWrite<Koila_GradientResource>]>]> {
  let summary = "adds the gradients of a loss to `.grad` of the weights";
  let description = [{
    A training step is a function with one such operation, whose operand is the
    loss of the whole batch. A tiled step has one in its loop. What it allocates
    is what the records of its program do: an analysis runs them.

    ```mlir
    koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
    ```
  }];
  let arguments = (ins AnyTensor:$self, Koila_OptionalTensor:$gradient,
                       OptionalAttr<BoolAttr>:$retain_graph,
                       BoolAttr:$create_graph);
  let results = (outs);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let differentiationRule = "";
}

class Koila_LeafBaseOp<string mnemonic> : Koila_Op<mnemonic, [
    DeclareOpInterfaceMethods<Koila_ShapeRuleInterface>,
    DeclareOpInterfaceMethods<Koila_BatchRuleInterface>,
    DeclareOpInterfaceMethods<Koila_MemoryRuleInterface, ["describeStorage"]>, Koila_AllocationInterface,
    DeclareOpInterfaceMethods<Koila_DifferentiationInterface>]> {
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Koila_LeafOp : Koila_LeafBaseOp<"leaf"> {
  let summary = "a tensor of the same elements with a gradient of its own";
  let description = [{
    `source.detach().requires_grad_()`: a new tensor on the storage of its
    operand, which requires a gradient; none flows to the operand. A training
    step has one for each argument that requires a gradient, a tiled step one
    for each slice of it. Two of the same operand are two tensors.

    ```mlir
    %0 = koila.leaf %x : (tensor<?x6xf32>) -> tensor<?x6xf32>
    %1 = koila.linear %0, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
    %2 = koila.sum %1 : (tensor<?x5xf32>) -> tensor<f32>
    koila.backward %2 {create_graph = false} : (tensor<f32>) -> ()
    %3 = koila.leaf.grad %0 : (tensor<?x6xf32>) -> tensor<?x6xf32>
    ```
  }];
  let arguments = (ins AnyTensor:$source);
  let results = (outs Res<AnyTensor, "", [MemAlloc<Koila_GradientResource>]>:$result);
}

def Koila_LeafGradOp : Koila_LeafBaseOp<"leaf.grad"> {
  let summary = "the gradient that backward passes have left in a leaf";
  let description = [{
    `leaf.grad`, behind a `koila.backward`, of the result of a `koila.leaf` that
    the loss depends on. The tensor that the backward pass made, no copy.
  }];
  let arguments = (ins Arg<AnyTensor, "", [MemRead<Koila_GradientResource>]>:$leaf);
  let results = (outs AnyTensor:$result);
  let extraClassDeclaration = [{
    /// What made the leaf.
    ::koila::LeafOp getLeafOp();
  }];
}

#endif // KOILA_DIALECT_KOILA_IR_LOSSOPS_TD
