//===- CodeNestingLimit.h - Code records read without parsing ---*- C++ -*-===//

#ifndef KOILA_TARGET_PYTORCHARCHIVE_CODENESTINGLIMIT_H
#define KOILA_TARGET_PYTORCHARCHIVE_CODENESTINGLIMIT_H

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSet.h"

namespace koila::torchscript {

/// What the text of a code record mentions.
struct CodeSummary {
  /// No parser recurses deeper than this over the text.
  unsigned nesting = 0;
  /// Words such as `forward`, outside of texts and comments.
  llvm::StringSet<> words;
  /// `namespace::name` of what is called as `ops.namespace.name`.
  llvm::StringSet<> operators;
  /// `namespace.Name` of what is named as `torch.classes.namespace.Name`.
  llvm::StringSet<> customClasses;
};

CodeSummary readCode(llvm::StringRef code);

/// How deep a type such as `List[List[int]]` nests.
unsigned getTypeNesting(llvm::StringRef type);

} // namespace koila::torchscript

#endif // KOILA_TARGET_PYTORCHARCHIVE_CODENESTINGLIMIT_H
