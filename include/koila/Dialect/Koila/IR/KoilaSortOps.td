//===- KoilaSortOps.td - Sorting, searching, cumulative operators -*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILASORTOPS_TD
#define KOILA_DIALECT_KOILA_IR_KOILASORTOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

#endif // KOILA_DIALECT_KOILA_IR_KOILASORTOPS_TD
