//===- KoilaCopyOps.td - Casts, copies and fills -*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILACOPYOPS_TD
#define KOILA_DIALECT_KOILA_IR_KOILACOPYOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

#endif // KOILA_DIALECT_KOILA_IR_KOILACOPYOPS_TD
