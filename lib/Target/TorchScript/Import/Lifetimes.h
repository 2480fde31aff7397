//===- Lifetimes.h - What folding takes from lifetimes ----------*- C++ -*-===//
//
// The interpreter keeps a tensor until the statement that uses it last is over,
// and a branch is one statement; what is in a list lives until the list goes.
// Marks in the graph say where lives end, so that they do not end sooner where
// import decides a branch, takes a tuple apart, gives readers of a list what
// they read, or where nobody reads a tensor any more once attributes are known.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_TARGET_TORCHSCRIPT_IMPORT_LIFETIMES_H
#define KOILA_TARGET_TORCHSCRIPT_IMPORT_LIFETIMES_H

#include "llvm/ADT/ArrayRef.h"
#include <optional>
#include <string>
#include <torch/csrc/jit/ir/ir.h>
#include <unordered_map>
#include <vector>

namespace koila::torchscript {

/// On an operation that LibTorch keeps, though it changes nothing: somebody
/// could tell.
inline const c10::Symbol kStays = c10::Symbol::attr("koila_stays");

inline constexpr const char *kDropsIdle =
    "LibTorch drops an operation that adds zero or multiplies by one where it "
    "can";

/// Whether LibTorch drops the operation where it can: it adds zero or
/// multiplies by one. With `profiles` the executor may know types that the
/// graph does not show.
bool changesNothing(torch::jit::Node *node, bool profiles);

/// Why tensors may live longer in the program itself than in `graph`; empty if
/// they do not.
std::string describeShortenedLives(torch::jit::Graph &graph, bool profiles);

/// Marks where the life of each tensor and container ends in the block that
/// makes it, if branches, loops or tuples may be folded. What LibTorch drops
/// before it runs `graph` is gone.
void markLifetimes(torch::jit::Graph &graph);

/// Marks that `values` live until `after` has run; returns the mark.
torch::jit::Node *markLifetimes(torch::jit::Node *after,
                                llvm::ArrayRef<torch::jit::Value *> values);

/// The operator of a tensor that nothing takes out of the tuple it is in, and
/// which is dropped earlier, or is not even computed, once `graph` is cleaned
/// up without marks; none if there is no such tensor.
std::optional<std::string> findShortenedLife(torch::jit::Graph &graph);

/// On a node of a method that was made of a program: what findShortenedLife
/// found.
inline const c10::Symbol kShortens = c10::Symbol::attr("koila_shortens");

/// Adds `values` to those of `mark`.
void addToMark(torch::jit::Node *mark,
               llvm::ArrayRef<torch::jit::Value *> values);

bool isLifetimeMark(const torch::jit::Node *node);

/// Marks keep what is in tuples in their place.
void takeMarkedTuplesApart(torch::jit::Graph &graph);

/// Takes the marks out of `graph`, of which none keeps a tuple: by the node
/// behind which one stood, or the end of a block for its beginning, values that
/// nothing reads there or later.
std::unordered_map<torch::jit::Node *, std::vector<torch::jit::Value *>>
takeKeptAlive(torch::jit::Graph &graph);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_IMPORT_LIFETIMES_H
