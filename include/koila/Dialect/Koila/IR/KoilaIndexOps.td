//===- KoilaIndexOps.td - Indexing, joining, padding, embedding -*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILAINDEXOPS_TD
#define KOILA_DIALECT_KOILA_IR_KOILAINDEXOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

#endif // KOILA_DIALECT_KOILA_IR_KOILAINDEXOPS_TD
