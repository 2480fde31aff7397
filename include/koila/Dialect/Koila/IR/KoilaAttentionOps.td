//===- KoilaAttentionOps.td - Attention and recurrent layers -*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILAATTENTIONOPS_TD
#define KOILA_DIALECT_KOILA_IR_KOILAATTENTIONOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

#endif // KOILA_DIALECT_KOILA_IR_KOILAATTENTIONOPS_TD
