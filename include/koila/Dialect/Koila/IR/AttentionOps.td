//===- AttentionOps.td - Attention and recurrent layers ----*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_ATTENTIONOPS_TD
#define KOILA_DIALECT_KOILA_IR_ATTENTIONOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"
include "koila/Interfaces/KernelWork.td"
include "koila/Interfaces/RandomOp.td"

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// `causal`, `grouped`, `kind` and `drops` are C++; see koila::rules::Attention.
/// A dropout that drops draws random numbers.
class Koila_AttentionOp<string mnemonic, string schema, dag operands,
                        string grouped, string kind, list<Trait> traits = [],
                        string drops = "false",
                        string faithful = "getDropoutP().isZero()",
                        list<Trait> effects = Koila_Ordered>
    : Koila_RuledOp<mnemonic, schema, "",
                    traits # [Koila_KernelWorkInterface], faithful, effects> {
  let description = [{
    softmax(query @ key^T * scale + mask) @ value, over the last two dims.
    Leading dims broadcast. The batch stays in a leading dim, or in the queries
    where nothing but they follow it; over the keys, samples mix. New storage.
  }];
  let arguments = operands;
  defvar attention = "{getQuery(), getKey(), getValue(), getAttnMask(), "
      "getIsCausal(), " # grouped # ", "
      "::koila::rules::Attention::Kind::" # kind # ", " # drops # "}";
  let shapeRule = "return ::koila::rules::inferAttention(rule, " # attention #
                  ");";
  let batchRule = "::koila::rules::inferAttentionBatch(rule, " # attention #
                  ");";
  code workDeclaration = [{
    ::koila::KernelWork describeWork(::koila::GetShape getShape);
  }];
  let extraClassDeclaration = baseDeclaration # workDeclaration;
  let moreDefinitions = [{
    ::koila::KernelWork $cppClass::describeWork(::koila::GetShape getShape) {
      return ::koila::rules::describeAttentionWork(getShape, getQuery(), getKey(),
                                                   getValue());
    }
  }];
}

def Koila_ScaledDotProductAttentionOp : Koila_AttentionOp<"scaled_dot_product_attention",
  "aten::scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0., bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor",
  (ins AnyTensor:$query, AnyTensor:$key, AnyTensor:$value,
       Koila_OptionalTensor:$attn_mask, F64Attr:$dropout_p, BoolAttr:$is_causal,
       OptionalAttr<F64Attr>:$scale, BoolAttr:$enable_gqa),
  "getEnableGqa()", "Any", [], "draws()", "getDropoutP().convertToDouble() < 1",
  [MemoryEffectsOpInterface, ConditionallySpeculatable,
   Koila_ConditionalRNGEffects]> {
  let extraClassDeclaration = baseDeclaration # workDeclaration # [{
    /// Whether weights are dropped, which only the way by matmul does.
    bool draws() { return !getDropoutP().isZero(); }
  }];
  let differentiationRule = "::koila::rules::describeExpressionDerivative(rule);";
}
def Koila_ScaledDotProductAttentionMathOp : Koila_AttentionOp<"_scaled_dot_product_attention_math",
  "aten::_scaled_dot_product_attention_math(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0., bool is_causal=False, Tensor? dropout_mask=None, *, float? scale=None, bool enable_gqa=False) -> (Tensor, Tensor)",
  (ins AnyTensor:$query, AnyTensor:$key, AnyTensor:$value,
       Koila_OptionalTensor:$attn_mask, F64Attr:$dropout_p, BoolAttr:$is_causal,
       Koila_OptionalTensor:$dropout_mask, OptionalAttr<F64Attr>:$scale,
       BoolAttr:$enable_gqa),
  "getEnableGqa()", "Math", [AttrSizedOperandSegments]> {
  let results = (outs AnyTensor:$result, AnyTensor:$scores);
}
def Koila_ScaledDotProductFlashAttentionForCpuOp : Koila_AttentionOp<"_scaled_dot_product_flash_attention_for_cpu",
  "aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float dropout_p=0., bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)",
  (ins AnyTensor:$query, AnyTensor:$key, AnyTensor:$value, F64Attr:$dropout_p,
       BoolAttr:$is_causal, Koila_OptionalTensor:$attn_mask,
       OptionalAttr<F64Attr>:$scale),
  "false", "Flash"> {
  let results = (outs AnyTensor:$output, AnyTensor:$logsumexp);
}

/// A layer of attention of sequences to themselves, as the fast path of
/// torch.nn.MultiheadAttention and TransformerEncoderLayer calls it.
/// `layer` is the initializer of a koila::rules::AttentionLayer.
class Koila_AttentionLayerOp<string mnemonic, string schema, dag operands,
                             string layer, list<Trait> traits = []>
    : Koila_RuledOp<mnemonic, schema, "", traits> {
  let description = [{
    Sequences `[N, L, E]` in, sequences of the same shape out. The batch stays
    in dim 0. New storage, dense row-major.
  }];
  let arguments = operands;
  let shapeRule = "return ::koila::rules::inferAttentionLayer(rule, " # layer #
                  ");";
  let batchRule = "::koila::rules::inferAttentionLayerBatch(rule, " # layer #
                  ");";
}

def Koila_NativeMultiHeadAttentionOp : Koila_AttentionLayerOp<"_native_multi_head_attention",
  "aten::_native_multi_head_attention(Tensor query, Tensor key, Tensor value, int embed_dim, int num_head, Tensor qkv_weight, Tensor qkv_bias, Tensor proj_weight, Tensor proj_bias, Tensor? mask=None, bool need_weights=True, bool average_attn_weights=True, int? mask_type=None) -> (Tensor, Tensor)",
  (ins AnyTensor:$query, AnyTensor:$key, AnyTensor:$value, I64Attr:$embed_dim,
       I64Attr:$num_head, AnyTensor:$qkv_weight, AnyTensor:$qkv_bias,
       AnyTensor:$proj_weight, AnyTensor:$proj_bias, Koila_OptionalTensor:$mask,
       BoolAttr:$need_weights, BoolAttr:$average_attn_weights,
       OptionalAttr<I64Attr>:$mask_type),
  "{getQuery(), getQkvWeight(), getQkvBias(), "
  "getProjWeight(), getProjBias(), getMask(), "
  "{getQuery(), getKey(), getValue()}, static_cast<int64_t>(getEmbedDim()), "
  "static_cast<int64_t>(getNumHead()), getMaskType(), getNeedWeights(), "
  "getAverageAttnWeights()}"> {
  let results = (outs AnyTensor:$result, AnyTensor:$weights);
}
def Koila_TransformerEncoderLayerFwdOp : Koila_AttentionLayerOp<"_transformer_encoder_layer_fwd",
  "aten::_transformer_encoder_layer_fwd(Tensor src, int embed_dim, int num_heads, Tensor qkv_weight, Tensor qkv_bias, Tensor proj_weight, Tensor proj_bias, bool use_gelu, bool norm_first, float eps, Tensor norm_weight_1, Tensor norm_bias_1, Tensor norm_weight_2, Tensor norm_bias_2, Tensor ffn_weight_1, Tensor ffn_bias_1, Tensor ffn_weight_2, Tensor ffn_bias_2, Tensor? mask=None, int? mask_type=None) -> Tensor",
  (ins AnyTensor:$src, I64Attr:$embed_dim, I64Attr:$num_heads,
       AnyTensor:$qkv_weight, AnyTensor:$qkv_bias, AnyTensor:$proj_weight,
       AnyTensor:$proj_bias, BoolAttr:$use_gelu, BoolAttr:$norm_first,
       F64Attr:$eps, AnyTensor:$norm_weight_1, AnyTensor:$norm_bias_1,
       AnyTensor:$norm_weight_2, AnyTensor:$norm_bias_2,
       AnyTensor:$ffn_weight_1, AnyTensor:$ffn_bias_1, AnyTensor:$ffn_weight_2,
       AnyTensor:$ffn_bias_2, Koila_OptionalTensor:$mask,
       OptionalAttr<I64Attr>:$mask_type),
  "{getSrc(), getQkvWeight(), getQkvBias(), "
  "getProjWeight(), getProjBias(), getMask(), {getSrc()}, "
  "static_cast<int64_t>(getEmbedDim()), static_cast<int64_t>(getNumHeads()), "
  "getMaskType()}"> {
}

//===----------------------------------------------------------------------===//
// Nested tensors
//===----------------------------------------------------------------------===//

/// What follows from a nested tensor, rules find by its padded one
/// (koila::rules::getPadded): it has a rank, but no sizes.
def Koila_NestedTensorFromMaskOp : Koila_RuledOp<"_nested_tensor_from_mask",
  "aten::_nested_tensor_from_mask(Tensor t, Tensor mask, bool mask_check=True) -> Tensor"> {
  let description = [{
    Sequences `[N, L, E]` without the steps where the mask is false. The result
    has no shape, so that operators without a rule for nested tensors know
    nothing of it. Data decide its size; samples mix. New storage.
  }];
  let arguments = (ins AnyTensor:$t, AnyTensor:$mask, BoolAttr:$mask_check);
  let shapeRule = "return ::koila::rules::inferNested(rule, getT(), getMask());";
  let batchRule = [{
    rule.mix("a nested tensor holds samples of several lengths together");
  }];
}
def Koila_ToPaddedTensorOp : Koila_RuledOp<"to_padded_tensor",
  "aten::to_padded_tensor(Tensor self, float padding, SymInt[]? output_size=None) -> Tensor"> {
  let description = [{
    The reverse of _nested_tensor_from_mask. Without a size it is as long as the
    longest sequence, which data decide. New storage, dense row-major.
  }];
  let arguments = (ins AnyTensor:$self, F64Attr:$padding,
                       OptionalAttr<DenseI64ArrayAttr>:$output_size,
                       Variadic<AnyType>:$dynamic);
  let shapeRule = "return ::koila::rules::inferToPadded(rule, getSelf());";
  let batchRule = [{
    rule.mix("a nested tensor holds samples of several lengths together");
  }];
}

//===----------------------------------------------------------------------===//
// Recurrent layers
//===----------------------------------------------------------------------===//

/// `layer` is the initializer of a koila::rules::Recurrent. A dropout between
/// layers that drops draws random numbers.
class Koila_RecurrentOp<string mnemonic, string schema, dag operands,
                        string layer, list<Trait> traits = []>
    : Koila_RuledOp<mnemonic, schema, "", traits,
                    "!getTrain() || getDropout().isZero()"> {
  let description = [{
    The outputs of the last layer for every step, and the last state of every
    cell. The batch stays where it is, and in dim 1 of the states; packed
    sequences mix samples. New storage.
  }];
  let arguments = operands;
  let results = (outs AnyTensor:$result, AnyTensor:$hidden);
  let shapeRule = "return ::koila::rules::inferRecurrent(rule, " # layer # ");";
  let batchRule = "::koila::rules::inferRecurrentBatch(rule, " # layer # ");";
  let differentiationRule = "::koila::rules::describeExpressionDerivative(rule);";
}

defvar layerArgs = (ins BoolAttr:$has_biases, I64Attr:$num_layers,
                        F64Attr:$dropout, BoolAttr:$train,
                        BoolAttr:$bidirectional);
class layerFacts {
  string value = "static_cast<int64_t>(getNumLayers()), getHasBiases(), "
                 "getBidirectional()";
}

class listOf<string name> {
  string value = "::llvm::to_vector_of<::mlir::Value>(get" # name # "())";
}

/// Of dense sequences. `state` is the operand of the hidden states.
class Koila_DenseRecurrentOp<string name, int gates, string arguments,
                             string results, dag state,
                             string hidden = "{getHx()}",
                             list<Trait> traits = []>
    : Koila_RecurrentOp<name # "_input",
        "aten::" # name # ".input(Tensor input, " # arguments # " hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> " # results,
        !con((ins AnyTensor:$input), state, (ins Variadic<AnyTensor>:$params),
             layerArgs, (ins BoolAttr:$batch_first)),
        "{getInput(), " # hidden # ", " # listOf<"Params">.value # ", " #
        gates # ", ::mlir::Value(), " # layerFacts<>.value #
        ", getBatchFirst()}", traits>;
/// Of packed sequences.
class Koila_PackedRecurrentOp<string name, int gates, string arguments,
                              string results, dag state,
                              string hidden = "{getHx()}",
                             list<Trait> traits = []>
    : Koila_RecurrentOp<name # "_data",
        "aten::" # name # ".data(Tensor data, Tensor batch_sizes, " # arguments # " hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional) -> " # results,
        !con((ins AnyTensor:$data, AnyTensor:$batch_sizes), state,
             (ins Variadic<AnyTensor>:$params), layerArgs),
        "{getData(), " # hidden # ", " # listOf<"Params">.value # ", " #
        gates # ", getBatchSizes(), " # layerFacts<>.value # "}", traits>;

defvar oneState = (ins AnyTensor:$hx);
defvar twoStates = (ins Variadic<AnyTensor>:$hx);

def Koila_LstmInputOp : Koila_DenseRecurrentOp<"lstm", 4, "Tensor[]",
    "(Tensor, Tensor, Tensor)", twoStates, listOf<"Hx">.value,
    [AttrSizedOperandSegments]> {
  let results = (outs AnyTensor:$result, AnyTensor:$hidden, AnyTensor:$cell);
}
def Koila_LstmDataOp : Koila_PackedRecurrentOp<"lstm", 4, "Tensor[]",
    "(Tensor, Tensor, Tensor)", twoStates, listOf<"Hx">.value,
    [AttrSizedOperandSegments]> {
  let results = (outs AnyTensor:$result, AnyTensor:$hidden, AnyTensor:$cell);
}
def Koila_GruInputOp : Koila_DenseRecurrentOp<"gru", 3, "Tensor",
    "(Tensor, Tensor)", oneState>;
def Koila_GruDataOp : Koila_PackedRecurrentOp<"gru", 3, "Tensor",
    "(Tensor, Tensor)", oneState>;
def Koila_RnnTanhInputOp : Koila_DenseRecurrentOp<"rnn_tanh", 1, "Tensor",
    "(Tensor, Tensor)", oneState>;
def Koila_RnnTanhDataOp : Koila_PackedRecurrentOp<"rnn_tanh", 1, "Tensor",
    "(Tensor, Tensor)", oneState>;
def Koila_RnnReluInputOp : Koila_DenseRecurrentOp<"rnn_relu", 1, "Tensor",
    "(Tensor, Tensor)", oneState>;
def Koila_RnnReluDataOp : Koila_PackedRecurrentOp<"rnn_relu", 1, "Tensor",
    "(Tensor, Tensor)", oneState>;

/// One step of one layer.
class Koila_RecurrentCellOp<string mnemonic, int gates, string arguments,
                            string results, dag state,
                            string hidden = "{getHx()}">
    : Koila_RuledOp<mnemonic,
        "aten::" # mnemonic # "(Tensor input, " # arguments # " hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> " # results,
        "", [AttrSizedOperandSegments]> {
  let arguments = !con((ins AnyTensor:$input), state,
      (ins AnyTensor:$w_ih, AnyTensor:$w_hh, Koila_OptionalTensor:$b_ih,
           Koila_OptionalTensor:$b_hh));
  defvar cell = "{getInput(), " # hidden # ", {getWIh(), getWHh(), getBIh(), "
                "getBHh()}, " # gates # "}";
  let shapeRule = "return ::koila::rules::inferCell(rule, " # cell # ");";
  let batchRule = "::koila::rules::inferCellBatch(rule, " # cell # ");";
  let differentiationRule = "::koila::rules::describeExpressionDerivative(rule);";
}
def Koila_LstmCellOp : Koila_RecurrentCellOp<"lstm_cell", 4, "Tensor[]",
    "(Tensor, Tensor)", twoStates, listOf<"Hx">.value> {
  let results = (outs AnyTensor:$hidden, AnyTensor:$cell);
}
def Koila_GruCellOp : Koila_RecurrentCellOp<"gru_cell", 3, "Tensor", "Tensor",
                                            oneState>;
def Koila_RnnTanhCellOp : Koila_RecurrentCellOp<"rnn_tanh_cell", 1, "Tensor",
                                                "Tensor", oneState>;
def Koila_RnnReluCellOp : Koila_RecurrentCellOp<"rnn_relu_cell", 1, "Tensor",
                                                "Tensor", oneState>;

def Koila_PackPaddedSequenceOp : Koila_RuledOp<"_pack_padded_sequence",
  "aten::_pack_padded_sequence(Tensor input, Tensor lengths, bool batch_first) -> (Tensor, Tensor)"> {
  let description = [{
    Sequences of several lengths, step after step without their padding. The
    lengths decide the extents; samples mix.
  }];
  let arguments = (ins AnyTensor:$input, AnyTensor:$lengths,
                       BoolAttr:$batch_first);
  let results = (outs AnyTensor:$data, AnyTensor:$batch_sizes);
  let shapeRule =
      "return ::koila::rules::inferPack(rule, getInput(), getLengths());";
  let batchRule = [{
    rule.mix("packed sequences hold the samples of each step together");
  }];
}
def Koila_PadPackedSequenceOp : Koila_RuledOp<"_pad_packed_sequence",
  "aten::_pad_packed_sequence(Tensor data, Tensor batch_sizes, bool batch_first, Scalar padding_value, int total_length) -> (Tensor, Tensor)"> {
  let description = [{
    The reverse of _pack_padded_sequence. How many samples there are is in the
    values of `batch_sizes`.
  }];
  let arguments = (ins AnyTensor:$data, AnyTensor:$batch_sizes,
                       BoolAttr:$batch_first, Koila_ScalarAttr:$padding_value,
                       I64Attr:$total_length, Variadic<AnyType>:$dynamic);
  let results = (outs AnyTensor:$result, AnyTensor:$lengths);
  let shapeRule = [{
    return ::koila::rules::inferPad(rule, getData(), getBatchSizes(),
                                    getBatchFirst());
  }];
  let batchRule = [{
    rule.mix("packed sequences hold the samples of each step together");
  }];
}

#endif // KOILA_DIALECT_KOILA_IR_ATTENTIONOPS_TD
